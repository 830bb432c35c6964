// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// report is the same questions to a server directly and through a gateway, by one client in turns, and by several one way
// after the other.
type report struct {
	Clients     int     `json:"clients"`
	IdleMiB     float64 `json:"idleMiB,omitempty"` // of the gateway
	PeakMiB     float64 `json:"peakMiB,omitempty"`
	Direct      figures `json:"direct"`
	Through     figures `json:"through"`
	AddedP50    float64 `json:"addedP50Milliseconds"`
	AddedP99    float64 `json:"addedP99Milliseconds"`
	DirectRush  figures `json:"directRush"`
	ThroughRush figures `json:"throughRush"`
}

// broken are the promises that were not kept.
func (r *report) broken() []string {
	var out []string
	for _, f := range []figures{r.Direct, r.Through, r.DirectRush, r.ThroughRush} {
		if f.Failed > 0 || f.Requests == 0 {
			out = append(out, fmt.Sprintf("%d of %d requests failed, the first with: %s", f.Failed, f.Failed+f.Requests, f.First))
		}
	}
	return out
}

func (r *report) show(w io.Writer) {
	fmt.Fprintf(w, "%-28s %10s %10s %10s %10s\n", "", "requests", "p50 ms", "p99 ms", "per second")
	several := fmt.Sprintf(", %d clients", r.Clients)
	for _, row := range []struct {
		name string
		f    figures
	}{
		{"the server, one client", r.Direct}, {"the gateway, one client", r.Through},
		{"the server" + several, r.DirectRush}, {"the gateway" + several, r.ThroughRush},
	} {
		fmt.Fprintf(w, "%-28s %10d %10.3f %10.3f", row.name, row.f.Requests, row.f.P50, row.f.P99)
		if row.f.PerSecond > 0 {
			fmt.Fprintf(w, " %10.0f", row.f.PerSecond)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "the gateway adds             p50 %.3f ms, p99 %.3f ms\n", r.AddedP50, r.AddedP99)
	if r.IdleMiB > 0 {
		fmt.Fprintf(w, "it takes                     %.0f MiB before the load, %.0f MiB at most\n", r.IdleMiB, r.PeakMiB)
	}
}

func save(what any, path string) error {
	text, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
