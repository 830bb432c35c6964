// SPDX-License-Identifier: Apache-2.0

// Package track turns what an instance observes into decisions: how long a load will take, how busy the instance is, whether
// others must hear of a change, and whether a model needs more copies or fewer. It must not read a clock, start goroutines,
// or call anybody. Points in time are milliseconds since 1970 and given by the caller.
package track
