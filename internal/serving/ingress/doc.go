// SPDX-License-Identifier: Apache-2.0

// Package ingress decides how requests from outside reach an InferenceService: its hosts and URLs, and the Ingress,
// HTTPRoutes, VirtualService and ExternalName Service that lead there.
//
// In Standard mode Objects returns one Ingress, or HTTPRoutes when the platform uses the Gateway API; URLs says where
// the service is found; Accepted says whether the gateway took the routes. In Knative mode KnativeObjects and
// KnativeURLs do the same on top of the addresses that Knative gave the components.
//
// Everything here is a pure function of its arguments, which it does not change. It must not decide whether a service
// is ready to be reached, nor when a route is written; that is for the room that calls it.
package ingress
