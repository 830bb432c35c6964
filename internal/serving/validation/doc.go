// SPDX-License-Identifier: Apache-2.0

// Package validation decides whether objects of the serving kinds may be stored, and
// fills in what their schemas cannot. Every problem of an object is reported at
// once, with the field and what to do. A problem that the stored object already
// had is a warning: nobody is kept from an unrelated change.
//
// It holds rules only. Whatever else they depend on comes in: the configuration
// through Rules, other objects through the reader of the request's context. It
// writes nothing and decides nothing about children.
package validation
