// SPDX-License-Identifier: Apache-2.0

// Package gateway is the gateway of the end-to-end tests: a controller that answers for HTTPRoutes of one Gateway, and a
// proxy that does what they say. It honours hosts, matches of paths and headers, header filters, rewrites of paths,
// weights and time limits, over HTTP/1.1; listeners, redirects, mirrors and TLS are not for it.
//
// It knows the Gateway API and Services, and must not know anything of who writes the routes.
package gateway
