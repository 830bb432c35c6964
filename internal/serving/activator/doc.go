// SPDX-License-Identifier: Apache-2.0

// Package activator is the process between clients and the pods of services that are scaled by their traffic. It is always
// in the way of these, so that it knows exactly what is under way: it holds requests while pods come, shares them out over
// pods that are ready, and counts. One of its replicas, the leader, adds up what all count and sets the number of pods.
//
// The way of a request: table finds the target that it is for, target gives it a pod or lets it wait, proxy hands it on.
// The way of a decision: leader asks its peers what they count, history says how many pods that takes, scales writes it.
//
// What it must not do: write anything but the number of pods (the subresource scale of a Deployment), its own Lease and the
// key by which its replicas know each other; keep bodies of requests that wait; ask the API server again and again. Which
// services there are, and how they are scaled, is decided by the plan of the service and read from Services (see
// activation).
package activator
