// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// report is what was measured.
type report struct {
	Clients int           `json:"clients"`
	Size    int           `json:"bytes"`
	Think   time.Duration `json:"think"`
	Ways    []figures     `json:"ways"`
}

// mostMemory bounds what the router needs for requests of this size.
const mostMemory = 96 << 20

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%d clients, %d bytes, the service thinks %s\n", r.Clients, r.Size, r.Think)
	fmt.Fprintf(w, "%-16s %10s %8s %10s %10s %10s %8s %10s\n", "", "requests", "failed", "per second", "p50", "p99", "p50 more", "peak RSS")
	for _, f := range r.Ways {
		more, memory := "", ""
		if f.PeakRSS > 0 {
			more = (f.P50 - r.Ways[0].P50).Round(time.Microsecond).String()
			memory = fmt.Sprintf("%.1f MiB", float64(f.PeakRSS)/(1<<20))
		}
		fmt.Fprintf(w, "%-16s %10d %8d %10.0f %10s %10s %8s %10s\n", f.Way, f.Requests, f.Failed, f.PerSec,
			f.P50.Round(time.Microsecond), f.P99.Round(time.Microsecond), more, memory)
	}
}

// broken tells which promises were not kept.
func (r *report) broken() error {
	var out []string
	for _, f := range r.Ways {
		if f.Failed > 0 {
			out = append(out, fmt.Sprintf("%d of %d requests failed on the way %s", f.Failed, f.Requests, f.Way))
		}
		if f.PeakRSS > mostMemory {
			out = append(out, fmt.Sprintf("the router of the way %s needed %d MiB, at most %d are promised", f.Way, f.PeakRSS>>20, mostMemory>>20))
		}
	}
	if len(out) > 0 {
		return errors.New(strings.Join(out, "; "))
	}
	return nil
}
