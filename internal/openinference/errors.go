// SPDX-License-Identifier: Apache-2.0

// Package openinference is what speakers of the open inference protocol share whatever they do with it: families of
// errors, and a bound on the memory that requests take. Below it are the protocol's messages, tensors and bodies. Nothing
// here knows a model, a mesh or a transport.
package openinference

import (
	"errors"
	"fmt"
)

// Kind is a family of errors; each protocol has a status for it.
type Kind int

// The families.
const (
	Internal    Kind = iota // the model or the server failed
	Invalid                 // the client must change the request
	NotFound                // the client asks for another model
	TooLarge                // the client must send less
	Busy                    // the client should come back later
	Unavailable             // the client should go to another replica
	Late                    // the client's deadline passed
	Cancelled               // the client went away
	Unsupported             // the client uses something that is not there
	Unfit                   // the model cannot be loaded here
)

// Error is an error with its family.
type Error struct {
	Kind    Kind
	Message string
}

func (e *Error) Error() string { return e.Message }

// Invalidf is an error that the client must mend.
func Invalidf(format string, args ...any) error {
	return &Error{Invalid, fmt.Sprintf(format, args...)}
}

// KindOf is the family of an error; what nobody classified is internal.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}
