// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// report is what was measured.
type report struct {
	Clients int       `json:"clients"`
	IdleMiB []float64 `json:"idleMiB"`
	Ways    []figures `json:"ways"` // the first is direct
	// Events arrived, and were due: two for each request that was logged.
	Events    int64 `json:"events"`
	EventsDue int64 `json:"eventsDue"`
}

// figures of one way; times are milliseconds.
type figures struct {
	Way       string  `json:"way"`
	Requests  int     `json:"requests"`
	PerSecond float64 `json:"perSecond"`
	P50       float64 `json:"p50"`
	P99       float64 `json:"p99"`
	Failed    int     `json:"failed"`
	First     string  `json:"firstFailure,omitempty"`
	PeakMiB   float64 `json:"peakMiB,omitempty"`
}

func (w *way) figures() figures {
	f := figures{Way: w.name, Requests: len(w.times), Failed: w.failed, First: w.first}
	if len(w.times) == 0 {
		return f
	}
	slices.Sort(w.times)
	at := func(part float64) float64 {
		return float64(w.times[min(int(part*float64(len(w.times))), len(w.times)-1)]) / float64(time.Millisecond)
	}
	f.PerSecond, f.P50, f.P99 = float64(len(w.times))/w.took.Seconds(), at(0.5), at(0.99)
	return f
}

// The promises.
const (
	mostIdleMiB = 20
	mostPeakMiB = 128
)

// broken are the promises that were not kept. None of them depends on how fast the machine is.
func (r *report) broken() []string {
	var out []string
	for i, mib := range r.IdleMiB {
		if mib > mostIdleMiB {
			out = append(out, fmt.Sprintf("agent %d takes %.1f MiB when idle, at most %d are promised", i+1, mib, mostIdleMiB))
		}
	}
	for _, f := range r.Ways {
		if f.Failed > 0 || f.Requests == 0 {
			out = append(out, fmt.Sprintf("%s: %d requests, %d failed, the first with: %s", f.Way, f.Requests, f.Failed, f.First))
		}
		if f.PeakMiB > mostPeakMiB {
			out = append(out, fmt.Sprintf("%s: %.0f MiB at most, %d are promised", f.Way, f.PeakMiB, mostPeakMiB))
		}
	}
	if r.Events != r.EventsDue {
		out = append(out, fmt.Sprintf("%d of %d events arrived", r.Events, r.EventsDue))
	}
	return out
}

func (r *report) show(w io.Writer) {
	fmt.Fprintf(w, "%d clients; idle %.1f MiB\n\n%-10s %10s %10s %10s %10s %8s\n", r.Clients, r.IdleMiB, "way", "requests/s", "p50 ms", "p99 ms", "added p50", "peak MiB")
	for _, f := range r.Ways {
		fmt.Fprintf(w, "%-10s %10.0f %10.3f %10.3f %10.3f %8.1f\n", f.Way, f.PerSecond, f.P50, f.P99, f.P50-r.Ways[0].P50, f.PeakMiB)
	}
	fmt.Fprintf(w, "\n%d of %d events arrived\n", r.Events, r.EventsDue)
}

func (r *report) save(file string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o600)
}
