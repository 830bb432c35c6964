// SPDX-License-Identifier: Apache-2.0

// Package engine takes every kind through the same four rooms: Observe reads,
// Plan decides, Apply writes, Report tells.
//
// A domain gives the engine a [Kind] (Observe and Plan) and a [Spec] (what the
// kind may read and write). Everything that talks to the API server happens
// here: watches, server-side apply, pruning, finalizers, the status patch,
// events and metrics. The engine knows no domain and decides nothing about
// what should exist.
//
// # How an unchanged child costs nothing
//
// What was applied is recognisable from the live child alone: a label
// holds the digest of the intent, and the child's managed fields show whether
// every field of that intent is still ours. When both hold there is nothing to
// send, also right after a restart. Somebody who edits a field of ours takes
// its ownership away, which the watch on the child shows at once.
//
// # How an object is woken
//
// The [Reader] that Observe reads through remembers what was asked for, found
// or not. When one of these things appears, changes or goes, the objects that
// asked for it, and no others, are reconciled again. Domains write no mapping
// functions and never poll.
package engine
