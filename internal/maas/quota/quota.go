// SPDX-License-Identifier: Apache-2.0

// Package quota counts tokens against the limits of subscriptions. A counter belongs to one user on one model within one
// subscription, and has a fixed window for each limit: it begins with the first token that is counted and ends with
// everything in it. A request may begin while every limit has a token left, so that the last one may go over, as it always
// could.
//
// Tokens are known only when an answer is over. So that many requests at once do not all begin with the same last token,
// each holds what it asks for while it runs, but never more than the smallest limit. Hence a counter never has more requests
// running than fit into its limit by what they hold, and its limit is exceeded by no more than what the last one holds and what
// any use above what they hold. Where a request does not say how much it asks for, whoever guesses should take no more than a
// share of the limit (Guess), so that a small limit does not make a user's requests wait for each other. What a process holds that ends without a word is free again after two leases.
//
// Memory counts for one process, Redis for all that share a server. Nothing here knows who a user is, or what HTTP is.
package quota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Kind of tokens that a limit counts.
type Kind byte

// What is counted. Limits of subscriptions are Total.
const (
	Total      Kind = 't'
	Prompt     Kind = 'p'
	Completion Kind = 'c'
)

// Limit is a number of tokens in a window.
type Limit struct {
	Tokens int64
	Window time.Duration
	// Of is Total if zero.
	Of Kind
}

func (l Limit) kind() Kind { return cmp.Or(l.Of, Total) }

// Tokens of one request.
type Tokens struct{ Prompt, Completion, Total int64 }

func (t Tokens) of(k Kind) int64 {
	switch k {
	case Prompt:
		return t.Prompt
	case Completion:
		return t.Completion
	}
	return t.Total
}

// whole is what can be counted: nothing negative, and a total that is no less than its parts.
func (t Tokens) whole() Tokens {
	t.Prompt, t.Completion = clamp(t.Prompt), clamp(t.Completion)
	t.Total = max(clamp(t.Total), t.Prompt+t.Completion)
	return t
}

// most is how many tokens one request can have. An answer that says more is wrong, and must not make a sum overflow.
const most = 1 << 40

func clamp(n int64) int64 { return min(max(n, 0), most) }

// Subject is whose tokens are counted: a user on a model within a subscription. The latter are namespace/name.
type Subject struct{ User, Subscription, Model string }

// Hold is what a request has while it runs; it is given back by Settle.
type Hold struct {
	Subject Subject
	Limits  []Limit
	Tokens  Tokens
	// lease in which it was made, by number.
	lease int64
}

// Verdict on a request that wants to begin.
type Verdict struct {
	Allowed bool
	// Hold is for Settle, if it may.
	Hold Hold
	// Refused is the limit that has nothing left, and RetryAfter how long that stays so, if it may not. Busy tells that what
	// is left is held by requests that run.
	Refused    Limit
	RetryAfter time.Duration
	Busy       bool
}

// Counters count. An error means that nobody could tell, which is no permission.
type Counters interface {
	// Reserve asks whether a request may begin, and holds tokens for it if so. All limits are asked at once.
	Reserve(ctx context.Context, s Subject, limits []Limit, want Tokens) (Verdict, error)
	// Settle gives back what was held and counts what was used.
	Settle(ctx context.Context, h Hold, used Tokens) error
}

// ErrLimits is a list that nobody can check: none, too many, or one that is not positive. Not to check is not to limit.
var ErrLimits = errors.New("the limits cannot be checked")

const (
	maxLimits = 32
	// lease is how long tokens are held at least, and twice of it at most, if nobody gives them back.
	lease = 5 * time.Minute
	// busy is when to come back where only running requests are in the way.
	busy = time.Second
	// share is the part of the smallest limit that a guess takes at most.
	share = 16
)

func check(limits []Limit) error {
	if len(limits) == 0 || len(limits) > maxLimits {
		return fmt.Errorf("%w: there are %d", ErrLimits, len(limits))
	}
	for _, l := range limits {
		if l.Tokens < 0 || l.Window < time.Millisecond || l.Window > longest {
			return fmt.Errorf("%w: %d tokens in %s", ErrLimits, l.Tokens, l.Window)
		}
		if k := l.kind(); k != Total && k != Prompt && k != Completion {
			return fmt.Errorf("%w: of an unknown kind", ErrLimits)
		}
	}
	return nil
}

// held is what a request holds of what it wants.
func held(limits []Limit, want Tokens) Tokens {
	want = want.whole()
	bound := func(k Kind, n int64) int64 {
		for _, l := range limits {
			if l.kind() == k {
				n = min(n, max(l.Tokens, 1))
			}
		}
		return n
	}
	return Tokens{bound(Prompt, want.Prompt), bound(Completion, want.Completion), bound(Total, want.Total)}
}

// Guess is what may be held of a number of tokens that nobody has asked for.
func Guess(limits []Limit, n int64) int64 {
	for _, l := range limits {
		n = min(n, max(l.Tokens/share, 1))
	}
	return n
}

// longest window that there can be.
const longest = 366 * 24 * time.Hour

// ParseWindow reads a window such as 30s, 5m or 24h.
func ParseWindow(text string) (time.Duration, error) {
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour}
	if len(text) < 2 || len(text) > 5 || text[0] == '0' || units[text[len(text)-1]] == 0 {
		return 0, errWindow(text)
	}
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 16)
	if err != nil {
		return 0, errWindow(text)
	}
	d := time.Duration(n) * units[text[len(text)-1]] //nolint:gosec // at most four digits
	if d > longest {
		return 0, fmt.Errorf("the window %s is longer than 366 days", text)
	}
	return d, nil
}

func errWindow(text string) error {
	return fmt.Errorf("the window %.16q is none: write 1 to 9999 and s, m or h, such as 5m", text)
}
