// SPDX-License-Identifier: Apache-2.0

// Package router runs the graph of an InferenceGraph: a request comes in, services are asked one after the other, together,
// by chance or by what the request says, and one answer goes out. It is told the graph once, when it starts, knows nothing of
// Kubernetes, and keeps nothing between requests; what they take together is bounded.
//
// Addresses, fields, conditions and errors are those of the router that graphs are written for. Where that one loses
// something without a word (a status, digits of a number, a request that was given up), this one does not; see
// docs/inferencegraph.md.
package router
