// SPDX-License-Identifier: Apache-2.0

package keys

import "time"

// Status of a key.
type Status string

// Every status. Expired is told by the time, not written.
const (
	Active  Status = "active"
	Revoked Status = "revoked"
	Expired Status = "expired"
)

// Record is what is kept of a key. The key itself is not among it.
type Record struct {
	ID, Tenant, Username, Name, Description string
	// Groups are those that the owner had when the key was made.
	Groups       []string
	Subscription string
	Labels       map[string]string
	Ephemeral    bool
	// Stored is the status in the database; ask StatusAt.
	Stored  Status
	Created time.Time
	// Expires and LastUsed are zero for never.
	Expires, LastUsed time.Time
	// Digest is what is stored of the key; it does not leave the server.
	Digest string
}

// StatusAt is the status at a time.
func (r *Record) StatusAt(now time.Time) Status {
	if r.Stored == Active && !r.Expires.IsZero() && !now.Before(r.Expires) {
		return Expired
	}
	return r.Stored
}

// Reasons why a key is not valid, as clients of the validation know them.
const (
	ReasonFormat         = "invalid key format"
	ReasonUnknown        = "key not found"
	ReasonEnded          = "key revoked or expired"
	ReasonNoSubscription = "key has no subscription bound"
)

// Verdict on a key: valid with a Record, or not with a Reason.
type Verdict struct {
	Valid  bool
	Reason string
	Record *Record
}

func (r *Record) verdict(now time.Time) Verdict {
	switch {
	case r.StatusAt(now) != Active:
		return Verdict{Reason: ReasonEnded}
	case r.Subscription == "":
		return Verdict{Reason: ReasonNoSubscription}
	}
	return Verdict{Valid: true, Record: r}
}
