// SPDX-License-Identifier: Apache-2.0

// Package admission decides whether an object may be stored, for every kind in
// the same way. Definitions are schema-light where Kubernetes' own types are
// embedded; this package makes up for it by decoding strictly, so that a
// misspelt field is refused with its full path and never pruned in silence. It
// also runs the API server's own schema code without a cluster, so that a person
// at a terminal reads the message that a cluster would give.
//
// It holds no rule of any one kind (those come in through Kind) and calls no
// API server.
package admission
