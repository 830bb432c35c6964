// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Fault is something that goes wrong between a client and the API server.
type Fault string

// The faults. Unless said otherwise the request does not reach the server.
const (
	// InternalError answers 500.
	InternalError Fault = "internal error"
	// Unavailable answers 503.
	Unavailable Fault = "unavailable"
	// TooManyRequests answers 429 with Retry-After. The client waits that long
	// and repeats the request by itself.
	TooManyRequests Fault = "too many requests"
	// Conflict answers 409.
	Conflict Fault = "conflict"
	// Timeout fails like a connection on which no answer comes, at once unless
	// the rule has a Delay.
	Timeout Fault = "timeout"
	// ClosedBefore closes the connection before the server heard the request.
	ClosedBefore Fault = "connection closed before the request"
	// ClosedAfter closes the connection after the server carried the request out,
	// so that the client cannot know that it did.
	ClosedAfter Fault = "connection closed after the request"
	// Slow lets the request through and the answer wait for the rule's Delay.
	Slow Fault = "slow answer"
)

// Rule says which requests meet with which fault. Of the fields that choose a
// request the empty ones choose every one.
type Rule struct {
	Fault Fault
	// Verbs are those of Call.
	Verbs []string
	// Targets are written as Call.Target writes them: "pods", "apps/deployments/status".
	Targets []string
	// Nth chooses the n-th request that Verbs and Targets choose, counted from 1
	// from the moment the rule was added.
	Nth int
	// Probability chooses each request with this likelihood.
	Probability float64
	// Limit ends the rule after so many faults; 0 stands for no end.
	Limit int
	// Delay is for Slow and Timeout.
	Delay time.Duration
	// RetryAfter is for TooManyRequests, one second at least.
	RetryAfter time.Duration
}

// Faults breaks requests by rules. The same seed makes the same choices: whether
// the n-th request that a rule looks at fails does not depend on how requests of
// other rules fall in between.
type Faults struct {
	seed uint64

	mu       sync.Mutex
	off      bool
	rules    []*ruleState
	injected map[Fault]int
}

type ruleState struct {
	Rule
	index  uint64
	seen   int
	struck int
}

// NewFaults returns a breaker without rules, switched on.
func NewFaults(seed uint64) *Faults { return &Faults{seed: seed, injected: map[Fault]int{}} }

// Add adds rules. The first rule that chooses a request has it.
func (f *Faults) Add(rules ...Rule) *Faults {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, rule := range rules {
		f.rules = append(f.rules, &ruleState{Rule: rule, index: uint64(len(f.rules))})
	}
	return f
}

// AddEach adds a rule with the probability for each way in which a call can
// fail at once. There are six, so that of ten calls about five fail with 0.1.
func (f *Faults) AddEach(probability float64) *Faults {
	for _, fault := range []Fault{InternalError, Unavailable, Conflict, Timeout, ClosedBefore, ClosedAfter} {
		f.Add(Rule{Fault: fault, Probability: probability})
	}
	return f
}

// Clear forgets all rules and keeps the counts.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// On lets the rules work.
func (f *Faults) On() { f.set(false) }

// Off lets every request pass; rules do not count meanwhile.
func (f *Faults) Off() { f.set(true) }

func (f *Faults) set(off bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = off
}

// Injected is the number of requests that were broken.
func (f *Faults) Injected() int {
	n := 0
	for _, count := range f.ByFault() {
		n += count
	}
	return n
}

// ByFault is the number of requests that were broken, by the way they were.
func (f *Faults) ByFault() map[Fault]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := map[Fault]int{}
	for fault, n := range f.injected {
		counts[fault] = n
	}
	return counts
}

// Wrap returns a copy of cfg whose requests are subject to the rules, also to
// those that are added later.
func (f *Faults) Wrap(cfg *rest.Config) *rest.Config {
	return wrap(cfg, func(call Call, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		rule, struck := f.choose(call)
		if !struck {
			return next.RoundTrip(req)
		}
		return rule.strike(req, next)
	})
}

// choose finds the rule that has the call, if any.
func (f *Faults) choose(call Call) (Rule, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.off {
		return Rule{}, false
	}
	var chosen *ruleState
	for _, rule := range f.rules {
		// Every rule sees every request, so that one rule's luck does not shift another's count.
		if rule.matches(call) && rule.draw(f.seed) && chosen == nil {
			chosen = rule
		}
	}
	if chosen == nil {
		return Rule{}, false
	}
	chosen.struck++
	f.injected[chosen.Fault]++
	return chosen.Rule, true
}

func (r *ruleState) matches(call Call) bool {
	return (len(r.Verbs) == 0 || slices.Contains(r.Verbs, call.Verb)) &&
		(len(r.Targets) == 0 || slices.Contains(r.Targets, call.Target()))
}

// draw tells whether the next request of the rule is to fail.
func (r *ruleState) draw(seed uint64) bool {
	r.seen++
	switch {
	case r.Limit > 0 && r.struck >= r.Limit:
		return false
	case r.Nth > 0:
		return r.seen == r.Nth
	case r.Probability > 0:
		return rand.New(rand.NewPCG(seed, r.index<<32|uint64(r.seen))).Float64() < r.Probability
	}
	return true
}

// strike lets a request meet with the fault.
func (r Rule) strike(req *http.Request, next http.RoundTripper) (*http.Response, error) {
	switch r.Fault {
	case Slow:
		resp, err := next.RoundTrip(req)
		if err == nil && !wait(req, r.Delay) {
			_ = resp.Body.Close()
			return nil, req.Context().Err()
		}
		return resp, err
	case ClosedAfter:
		resp, err := next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		// Only a complete answer proves that the request was carried out.
		if callOf(req).Verb != "watch" {
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		_ = resp.Body.Close()
		return nil, broken(io.ErrUnexpectedEOF)
	}

	if req.Body != nil {
		defer func() { _ = req.Body.Close() }()
	}
	switch r.Fault {
	case Timeout:
		if !wait(req, r.Delay) {
			return nil, req.Context().Err()
		}
		return nil, broken(timeoutError{})
	case ClosedBefore:
		return nil, broken(syscall.ECONNRESET)
	}
	return r.refuse(req)
}

// broken is an error as the network gives them.
func broken(cause error) error {
	return &net.OpError{Op: "read", Net: "tcp", Err: cause}
}

// timeoutError is what net and client-go recognise as a time-out.
type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// wait tells whether the request still lives after d.
func wait(req *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-req.Context().Done():
		return false
	}
}

// refusals are the answers of a server that will not do what it is asked.
var refusals = map[Fault]metav1.Status{
	InternalError:   {Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError},
	Unavailable:     {Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable},
	TooManyRequests: {Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests},
	Conflict:        {Code: http.StatusConflict, Reason: metav1.StatusReasonConflict},
}

func (r Rule) refuse(req *http.Request) (*http.Response, error) {
	status, known := refusals[r.Fault]
	if !known {
		return nil, fmt.Errorf("testkit knows no fault %q", r.Fault)
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.Status = metav1.StatusFailure
	status.Message = "fault injected by the test: " + string(r.Fault)
	header := http.Header{"Content-Type": {"application/json"}}
	if r.Fault == TooManyRequests {
		seconds := max(1, int(r.RetryAfter.Round(time.Second)/time.Second))
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
		header.Set("Retry-After", strconv.Itoa(seconds))
	}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: int(status.Code), Status: fmt.Sprintf("%d %s", status.Code, http.StatusText(int(status.Code))),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}
