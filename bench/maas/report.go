// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/modelplane/modelplane/bench/load"
)

// report is what was measured of our servers.
type report struct {
	Keys      int        `json:"keys"`
	Clients   int        `json:"clients"`
	Validate  validation `json:"validate"`
	Selects   []selects  `json:"select"`
	Processor processor  `json:"processor"`
}

// validation is how keys are checked. Asked is how many questions to the database there were for each request.
type validation struct {
	Hit          load.Figures `json:"hit"`
	HitAsked     float64      `json:"hitAsked"`
	Cold         load.Figures `json:"cold"`
	ColdAsked    float64      `json:"coldAsked"`
	Miss         load.Figures `json:"miss"`
	MissAsked    float64      `json:"missAsked"`
	Unknown      load.Figures `json:"unknown"`
	UnknownAsked float64      `json:"unknownAsked"`
	Remembered   float64      `json:"remembered"` // keys in memory when most were asked for
	Forgotten    float64      `json:"forgotten"`  // of them, while nobody asked for good ones
	Noted        int          `json:"noted"`      // keys of which the database has when they were used
	MiB          float64      `json:"MiB"`
	PeakMiB      float64      `json:"peakMiB"`
}

// selects is one server with its subscriptions, asked in turns with the others and then alone.
type selects struct {
	Subscriptions int          `json:"subscriptions"`
	Turns         load.Figures `json:"turns"`
	Rush          load.Figures `json:"rush"`
	IdleMiB       float64      `json:"idleMiB"`
	PeakMiB       float64      `json:"peakMiB"`
	Complaints    []string     `json:"complaints,omitempty"`
}

// processor is what the payload processor adds and holds.
type processor struct {
	Plain          load.Figures `json:"plain"`
	Checked        load.Figures `json:"checked"`
	AddedP50       float64      `json:"addedP50Milliseconds"`
	AddedP99       float64      `json:"addedP99Milliseconds"`
	PlainStreams   streams      `json:"plainStreams"`
	CheckedStreams streams      `json:"checkedStreams"`
	FirstAddedP50  float64      `json:"firstAddedP50Milliseconds"`
	FirstAddedP99  float64      `json:"firstAddedP99Milliseconds"`
	All            holding      `json:"all"`
	TooMany        holding      `json:"tooMany"`
	Room           float64      `json:"roomMiB"`
	LeftBytes      float64      `json:"leftBytes"` // held when nobody asks
	IdleMiB        float64      `json:"idleMiB"`
	RateMiB        float64      `json:"rateMiB"` // at most, so far
	StreamsMiB     float64      `json:"streamsMiB"`
	PeakMiB        float64      `json:"peakMiB"`
	EnvoyMiB       float64      `json:"envoyPeakMiB"`
	Complaints     []string     `json:"complaints,omitempty"`
}

// streams are answers that come in events: how long until the first one, and until the last.
type streams struct {
	First load.Figures `json:"first"`
	Whole load.Figures `json:"whole"`
}

// holding is many requests at once that are there but for their last byte.
type holding struct {
	Requests int     `json:"requests"`
	Bytes    int     `json:"bytes"` // of each
	Answered int     `json:"answered"`
	Refused  int     `json:"refused"` // with 503, for want of room
	Failed   int     `json:"failed"`
	First    string  `json:"firstFailure,omitempty"`
	HeldMiB  float64 `json:"heldMiB"` // as the processor counts
	MiB      float64 `json:"MiB"`     // as the operating system counts, at that moment
	PeakMiB  float64 `json:"peakMiB"`
}

// The promises.
const (
	// mostAPI and mostProcessor are the limits that the platform gives the containers.
	mostAPI, mostProcessor = 128, 256
	// mostAsked is the share of requests after keys that are known, or were not there a moment ago, for which the database is
	// asked all the same: none, unless the machine is too busy for the heartbeat that lets a server believe itself.
	mostAsked = 0.2
	// mostRemembered is how many keys a server remembers.
	mostRemembered = 100_000
	// mostSlower is how much longer the choice among most subscriptions takes than among fewest, at the median.
	mostSlower = 1.5
	// mostAdded is what the processor adds to a request at the median, in milliseconds.
	mostAdded = 10.0
)

// counts are the promises that do not depend on the machine.
func (r *report) counts() (out []string) {
	promise := func(kept bool, format string, args ...any) {
		if !kept {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	v, p := r.Validate, r.Processor
	figures := []load.Figures{v.Hit, v.Cold, v.Miss, v.Unknown, p.Plain, p.Checked, p.PlainStreams.Whole, p.CheckedStreams.Whole}
	for _, s := range r.Selects {
		figures = append(figures, s.Turns, s.Rush)
		promise(s.PeakMiB <= mostAPI, "maas-api with %d subscriptions takes %.0f MiB, at most %d are promised", s.Subscriptions, s.PeakMiB, mostAPI)
		promise(len(s.Complaints) == 0, "maas-api with %d subscriptions complains: %s", s.Subscriptions, first(s.Complaints))
	}
	for i, f := range figures {
		promise(f.Failures() == 0 && f.Requests > 0, "load %d: %d of %d requests failed, the first with: %s", i, f.Failures(), f.Failures()+f.Requests, f.First)
	}
	promise(v.HitAsked <= mostAsked, "the database is asked for %.2f of the keys that are known, at most %.1f are promised", v.HitAsked, mostAsked)
	promise(v.MissAsked <= mostAsked, "the database is asked for %.2f of the requests with one unknown key, at most %.1f are promised", v.MissAsked, mostAsked)
	promise(v.ColdAsked == 1, "the database is asked %.3f times for a key that is not known yet, one is promised", v.ColdAsked)
	promise(v.UnknownAsked == 1, "the database is asked %.3f times for a key that does not exist, one is promised", v.UnknownAsked)
	promise(v.Remembered <= mostRemembered, "%.0f keys are remembered, at most %d are promised", v.Remembered, mostRemembered)
	promise(v.Forgotten <= 0, "%.0f keys are forgotten for others that do not exist, none is promised", v.Forgotten)
	promise(p.PeakMiB <= mostProcessor, "the payload processor takes %.0f MiB, at most %d are promised", p.PeakMiB, mostProcessor)
	promise(len(p.Complaints) == 0, "the payload processor complains: %s", first(p.Complaints))
	promise(p.LeftBytes == 0, "%.0f bytes of bodies are held when nobody asks, none is promised", p.LeftBytes)
	for _, h := range []holding{p.All, p.TooMany} {
		promise(h.Failed == 0 && h.Answered > 0, "%d of %d requests that came slowly failed, the first with: %s", h.Failed, h.Requests, h.First)
		promise(h.HeldMiB <= p.Room, "%.1f MiB of bodies are held, at most %.0f are promised", h.HeldMiB, p.Room)
	}
	promise(p.All.Refused == 0, "%d of %d requests are refused though there is room for all, none is promised", p.All.Refused, p.All.Requests)
	promise(p.TooMany.Refused > 0, "no request is refused though there is no room for all")
	return out
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// slower is how much longer the choice among most subscriptions takes.
func (r *report) slower() float64 {
	few, many := r.Selects[0].Turns.P50, r.Selects[len(r.Selects)-1].Turns.P50
	if few == 0 {
		return 0
	}
	return many / few
}

// broken are all promises that were not kept.
func (r *report) broken() []string {
	out := r.counts()
	if s := r.slower(); s > mostSlower {
		out = append(out, fmt.Sprintf("among %d subscriptions a choice takes %.2f times as long as among %d, at most %.1f is promised",
			r.Selects[len(r.Selects)-1].Subscriptions, s, r.Selects[0].Subscriptions, mostSlower))
	}
	if r.Processor.AddedP50 > mostAdded {
		out = append(out, fmt.Sprintf("the payload processor adds %.2f ms at the median, at most %.0f are promised", r.Processor.AddedP50, mostAdded))
	}
	return out
}

const heading = "%-40s %10s %10s %10s %10s\n"

func showRow(w io.Writer, name string, f load.Figures) {
	fmt.Fprintf(w, "%-40s %10d %10.3f %10.3f", name, f.Requests, f.P50, f.P99)
	if f.PerSecond > 0 {
		fmt.Fprintf(w, " %10.0f", f.PerSecond)
	}
	if n := f.Failures(); n > 0 {
		fmt.Fprintf(w, "  %d failed %v, the first with: %s", n, f.Failed, f.First)
	}
	fmt.Fprintln(w)
}

func (r *report) show(w io.Writer) {
	v, p := r.Validate, r.Processor
	fmt.Fprintf(w, "%d keys, %d clients\n", r.Keys, r.Clients)
	fmt.Fprintf(w, heading, "", "requests", "p50 ms", "p99 ms", "per second")
	showRow(w, "validate: known", v.Hit)
	showRow(w, "validate: not known yet", v.Cold)
	showRow(w, "validate: one that does not exist", v.Miss)
	showRow(w, "validate: others that do not exist", v.Unknown)
	for _, s := range r.Selects {
		showRow(w, fmt.Sprintf("select among %d, in turns", s.Subscriptions), s.Turns)
	}
	for _, s := range r.Selects {
		showRow(w, fmt.Sprintf("select among %d", s.Subscriptions), s.Rush)
	}
	showRow(w, "through Envoy", p.Plain)
	showRow(w, "and the payload processor", p.Checked)
	showRow(w, "long prompts: first event", p.PlainStreams.First)
	showRow(w, "and the payload processor", p.CheckedStreams.First)
	showRow(w, "long prompts: whole stream", p.PlainStreams.Whole)
	showRow(w, "and the payload processor", p.CheckedStreams.Whole)
	fmt.Fprintf(w, "database asked per request   known %.4f, not yet known %.4f, one unknown %.4f, others unknown %.4f\n", v.HitAsked, v.ColdAsked, v.MissAsked, v.UnknownAsked)
	fmt.Fprintf(w, "keys remembered              %.0f, forgotten for unknown ones %.0f, uses noted %d\n", v.Remembered, v.Forgotten, v.Noted)
	fmt.Fprintf(w, "maas-api after keys          %.0f MiB, %.0f MiB at most\n", v.MiB, v.PeakMiB)
	for _, s := range r.Selects {
		fmt.Fprintf(w, "maas-api with %-6d subscriptions  %.0f MiB before the load, %.0f MiB at most\n", s.Subscriptions, s.IdleMiB, s.PeakMiB)
	}
	fmt.Fprintf(w, "select                       takes %.2f times as long among %d\n", r.slower(), r.Selects[len(r.Selects)-1].Subscriptions)
	fmt.Fprintf(w, "the processor adds           p50 %.3f ms, p99 %.3f ms; to the first event of a long prompt p50 %.1f ms, p99 %.1f ms\n", p.AddedP50, p.AddedP99, p.FirstAddedP50, p.FirstAddedP99)
	fmt.Fprintf(w, "the processor takes          %.0f MiB before the load, at most %.0f MiB at the rate, %.0f MiB with streams, %.0f MiB in all; Envoy %.0f MiB\n",
		p.IdleMiB, p.RateMiB, p.StreamsMiB, p.PeakMiB, p.EnvoyMiB)
	for _, h := range []holding{p.All, p.TooMany} {
		fmt.Fprintf(w, "%d prompts of %d bytes at once: %d answered, %d refused, %d failed; %.1f MiB held of %.0f, %.0f MiB taken, %.0f MiB at most\n",
			h.Requests, h.Bytes, h.Answered, h.Refused, h.Failed, h.HeldMiB, p.Room, h.MiB, h.PeakMiB)
	}
}
