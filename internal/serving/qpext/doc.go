// SPDX-License-Identifier: Apache-2.0

// Package qpext shows the metrics of a model server and of Knative's queue-proxy beside it at one address, because a pod can
// name only one to Prometheus. It may start the queue-proxy itself and then ends with it, so that one image can take the
// queue-proxy's place. It changes no value, and what it cannot read it says.
package qpext
