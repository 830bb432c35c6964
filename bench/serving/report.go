// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
)

// report is everything that was measured.
type report struct {
	Services int `json:"services"`
	Clients  int `json:"clients"`
	Workers  int `json:"workers"`
	Cores    int `json:"cores"`
	Children int `json:"childrenPerService"`
	Touched  int `json:"touched"`

	Start         phase   `json:"start"`
	Make          phase   `json:"make"`
	CreateSeconds float64 `json:"createSeconds"`
	P50           float64 `json:"p50Seconds"`
	P99           float64 `json:"p99Seconds"`
	Slowest       float64 `json:"slowestSeconds"`
	Usage         usage   `json:"usage"`
	Idle          phase   `json:"idle"`
	IdleUsage     usage   `json:"idleUsage"`
	Restart       phase   `json:"restart"`
	RestartUsage  usage   `json:"restartUsage"`

	Touch []touchPhase `json:"touch"`

	Floor *floorResult `json:"floor,omitempty"`
	Ratio float64      `json:"ratio,omitempty"`
	// Ready are the seconds after which services were ready.
	Ready []float64 `json:"ready"`
}

// phase is what passed between the manager and the API server in a part of the
// measurement, without renewals of leases.
type phase struct {
	Seconds  float64    `json:"seconds"`
	Requests int        `json:"requests"`
	Writes   int        `json:"writes"`
	Calls    []calls    `json:"calls"`
	Each     *perObject `json:"perService,omitempty"`
}

// touchPhase is what a change of one field costs.
type touchPhase struct {
	Field string `json:"field"`
	phase
}

type perObject struct {
	Requests float64 `json:"requests"`
	Writes   float64 `json:"writes"`
}

// calls of one kind.
type calls struct {
	Verb   string  `json:"verb"`
	Target string  `json:"target"`
	Count  int     `json:"count"`
	Each   float64 `json:"perService,omitempty"`
}

func (p *phase) count(work testkit.Counts, per int) {
	p.Requests, p.Writes = work.Total(), work.Writes()
	for call, n := range work {
		c := calls{Verb: call.Verb, Target: call.Target(), Count: n}
		if per > 0 {
			c.Each = float64(n) / float64(per)
		}
		p.Calls = append(p.Calls, c)
	}
	slices.SortFunc(p.Calls, func(a, b calls) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Target, b.Target))
	})
	if per > 0 {
		p.Each = &perObject{Requests: float64(p.Requests) / float64(per), Writes: float64(p.Writes) / float64(per)}
	}
}

// percentile of sorted durations, in seconds.
func percentile(sorted []time.Duration, percent int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := (len(sorted)*percent+99)/100 - 1
	return sorted[max(i, 0)].Seconds()
}

// print writes the report for a person.
func (r *report) print(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("services", "%d, created by %d clients on %d cores", r.Services, r.Clients, r.Cores)
	line("children per service", "%d", r.Children)
	line("all created", "%.1f s", r.CreateSeconds)
	line("all ready", "%.1f s", r.Make.Seconds)
	line("ready, each", "p50 %.1f s, p99 %.1f s, slowest %.1f s", r.P50, r.P99, r.Slowest)
	if r.Floor != nil {
		line("floor", "%.1f s for %d children each with %d workers", r.Floor.Seconds, r.Floor.Children, r.Workers)
		line("all ready / floor", "%.2f", r.Ratio)
	}
	line("requests per service", "%.2f, of which writes %.2f", r.Make.Each.Requests, r.Make.Each.Writes)
	line("manager", "%.1f s CPU, %.0f MiB RSS at its peak, %.0f MiB in the end", r.Usage.CPUSeconds, r.Usage.PeakRSSMiB, r.Usage.RSSMiB)
	line("start", "%.1f s to the first service, %d requests once", r.Start.Seconds, r.Start.Requests)
	line("idle", "%d writes, %d requests, %.2f s CPU in %.0f s", r.Idle.Writes, r.Idle.Requests, r.IdleUsage.CPUSeconds, r.Idle.Seconds)
	line("restart", "%d writes, %d requests, %.1f s, %.1f s CPU, %.0f MiB RSS at its peak", r.Restart.Writes, r.Restart.Requests,
		r.Restart.Seconds, r.RestartUsage.CPUSeconds, r.RestartUsage.PeakRSSMiB)
	for _, c := range r.Touch {
		line(c.Field+" changed", "%.2f requests, of which writes %.2f, for each of %d services", c.Each.Requests, c.Each.Writes, r.Touched)
	}
	_ = table.Flush()
	section := func(name string, p *phase) {
		if len(p.Calls) > 0 {
			fmt.Fprintf(w, "\nRequests %s\n%s", name, p.table())
		}
	}
	section("while creating", &r.Make)
	section("while idle", &r.Idle)
	section("after the restart", &r.Restart)
	for i := range r.Touch {
		section("to change "+r.Touch[i].Field, &r.Touch[i].phase)
	}
}

func (p *phase) table() string {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, c := range p.Calls {
		fmt.Fprintf(table, "  %s\t%s\t%d", c.Verb, c.Target, c.Count)
		if c.Each > 0 {
			fmt.Fprintf(table, "\t%.2f each", c.Each)
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush()
	return out.String()
}
