// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/modelplane/modelplane/bench/load"
)

// report is what was measured of our mesh.
type report struct {
	Models          int       `json:"models"`
	Processes       int       `json:"processes"`
	RegisterSeconds float64   `json:"registerSeconds"`
	IdleSeconds     float64   `json:"idleSeconds"`
	IdleWrites      int64     `json:"idleWrites"`
	IdleMiB         []float64 `json:"idleMiB"`
	PeakMiB         []float64 `json:"peakMiB"` // of the processes that were not killed
	Beside          routing   `json:"beside"`
	Forwarded       routing   `json:"forwarded"`
	Loss            loss      `json:"loss"`
}

// routing is the same calls directly and through the mesh, in turns.
type routing struct {
	Direct   load.Figures `json:"direct"`
	Mesh     load.Figures `json:"mesh"`
	AddedP50 float64      `json:"addedP50Milliseconds"`
	AddedP99 float64      `json:"addedP99Milliseconds"`
}

// loss is what happened after a process was killed, in milliseconds from then.
type loss struct {
	Models int     `json:"models"`
	P50    float64 `json:"p50Milliseconds"`
	Max    float64 `json:"maxMilliseconds"`
	// Refused are calls of the lost models that failed before one of them answered.
	Refused      int    `json:"refused"`
	FirstRefused string `json:"firstRefused,omitempty"`
	// Others are calls of models that were not lost, through processes that were not killed.
	Others load.Figures `json:"others"`
}

// The promises.
const (
	mostMiB = 150 // per process, with 100,000 models
	// mostAdded is what the mesh beside a model may add to a call, at the 99th percentile, in milliseconds.
	mostAdded = 1.0
	// mostIdleWrites is per process and minute: its own record, when that is old.
	mostIdleWrites = 2
)

// counts are the promises that do not depend on the machine.
func (r *report) counts() []string {
	var out []string
	for i, mib := range slices.Concat(r.IdleMiB, r.PeakMiB) {
		if mib > mostMiB {
			out = append(out, fmt.Sprintf("figure %d of memory is %.0f MiB, at most %d are promised", i, mib, mostMiB))
		}
	}
	if minutes := r.IdleSeconds / 60; float64(r.IdleWrites) > max(1, minutes)*mostIdleWrites*float64(r.Processes) {
		out = append(out, fmt.Sprintf("%d writes to etcd in %.0f idle seconds, at most %d per process and minute are promised", r.IdleWrites, r.IdleSeconds, mostIdleWrites))
	}
	if n := r.Loss.Others.Failures(); n > 0 {
		out = append(out, fmt.Sprintf("%d calls failed that a healthy copy could have answered, the first with: %s", n, r.Loss.Others.First))
	}
	return out
}

// broken are all promises that were not kept.
func (r *report) broken() []string {
	out := r.counts()
	if r.Beside.AddedP99 > mostAdded {
		out = append(out, fmt.Sprintf("the mesh adds %.2f ms at p99, at most %.0f is promised", r.Beside.AddedP99, mostAdded))
	}
	return out
}

func (r *report) show(w io.Writer) {
	fmt.Fprintf(w, "%d models over %d processes, registered in %.1f s (%.0f/s)\n", r.Models, r.Processes, r.RegisterSeconds, float64(r.Models)/r.RegisterSeconds)
	fmt.Fprintf(w, "memory per process, idle      %.0f MiB\n", r.IdleMiB)
	fmt.Fprintf(w, "memory per process, at most   %.0f MiB\n", r.PeakMiB)
	fmt.Fprintf(w, "writes to etcd when idle      %d in %.0f s\n", r.IdleWrites, r.IdleSeconds)
	fmt.Fprintf(w, "%-29s %10s %10s %10s %10s\n", "", "calls", "p50 ms", "p99 ms", "max ms")
	for _, row := range []struct {
		name string
		f    load.Figures
	}{
		{"directly", r.Beside.Direct}, {"through the mesh beside it", r.Beside.Mesh},
		{"directly", r.Forwarded.Direct}, {"through another process", r.Forwarded.Mesh},
	} {
		fmt.Fprintf(w, "%-29s %10d %10.3f %10.3f %10.3f\n", row.name, row.f.Requests, row.f.P50, row.f.P99, row.f.Max)
	}
	fmt.Fprintf(w, "added beside                  p50 %.3f ms, p99 %.3f ms\n", r.Beside.AddedP50, r.Beside.AddedP99)
	fmt.Fprintf(w, "added when forwarded          p50 %.3f ms, p99 %.3f ms\n", r.Forwarded.AddedP50, r.Forwarded.AddedP99)
	fmt.Fprintf(w, "after a kill                  %d models answer elsewhere after p50 %.0f ms, at most %.0f ms; %d calls of them failed until then\n",
		r.Loss.Models, r.Loss.P50, r.Loss.Max, r.Loss.Refused)
	fmt.Fprintf(w, "other models meanwhile        %d calls, %d failed, p99 %.2f ms\n", r.Loss.Others.Requests, r.Loss.Others.Failures(), r.Loss.Others.P99)
}
