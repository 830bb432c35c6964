// SPDX-License-Identifier: Apache-2.0

// Package mesh is the command mesh: the process beside a multi-model runtime. All processes of a service are one mesh: each
// knows every model from etcd, answers for any of them, and sends a call to an instance that has the model, or has one load
// it. Messages pass through undecoded, unary or streamed, and wait without holding a thread.
//
// The way of a call: server.go takes it in and finds out whom it is for, router.go finds the instance, exchange.go moves the
// messages, and entry.go, load.go and cache.go have what this instance holds. What others should know of that is written by
// books.go. Everything that nobody waits for is in rates.go, janitor.go, reaper.go and vmodels.go. It must not know any
// inference protocol, nor Kubernetes.
package mesh
