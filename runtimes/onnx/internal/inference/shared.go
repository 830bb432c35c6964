// SPDX-License-Identifier: Apache-2.0

package inference

import "github.com/modelplane/modelplane/internal/openinference"

// What every speaker of the protocol has.
type (
	Kind   = openinference.Kind
	Error  = openinference.Error
	Budget = openinference.Budget
	Share  = openinference.Share
)

// The families of errors.
const (
	Internal    = openinference.Internal
	Invalid     = openinference.Invalid
	NotFound    = openinference.NotFound
	TooLarge    = openinference.TooLarge
	Busy        = openinference.Busy
	Unavailable = openinference.Unavailable
	Late        = openinference.Late
	Cancelled   = openinference.Cancelled
	Unsupported = openinference.Unsupported
	Unfit       = openinference.Unfit
)

// Invalidf is an error that the client must mend.
func Invalidf(format string, args ...any) error { return openinference.Invalidf(format, args...) }

// KindOf is the family of an error; what nobody classified is internal.
func KindOf(err error) Kind { return openinference.KindOf(err) }

// NewBudget allows total bytes at the same time and each bytes for one request as it is sent.
func NewBudget(total, each int64) *Budget { return openinference.NewBudget(total, each) }
