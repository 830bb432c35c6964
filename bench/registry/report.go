// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// report is what was measured of one server.
type report struct {
	Server  string             `json:"server"`
	Models  int                `json:"models"`
	Figures map[string]figures `json:"operations"`
	// StartMiB and PeakMiB are its memory before and after.
	StartMiB float64 `json:"startMiB,omitempty"`
	PeakMiB  float64 `json:"peakMiB,omitempty"`
}

// Promises that do not depend on the machine: the most statements of a request, however much there is.
const (
	readStatements   = 2.0 // the entities, and the properties of all of them
	createStatements = 5.0 // 4 for a model and 6 for its version: begin, check, write three tables, commit
	// mostMiB is for a hundred thousand models.
	mostMiB = 100
)

func mostStatements(o operation) float64 {
	if strings.HasPrefix(o.name, "create") {
		return createStatements
	}
	return readStatements
}

// broken tells which promises were not kept.
func (r *report) broken() []string {
	var out []string
	for _, o := range operations {
		if f, ok := r.Figures[o.name]; ok && f.Statements > mostStatements(o) {
			out = append(out, fmt.Sprintf("%s takes %.1f statements per request, at most %.1f are promised", o.name, f.Statements, mostStatements(o)))
		}
	}
	if r.PeakMiB > mostMiB {
		out = append(out, fmt.Sprintf("the server needed %.0f MiB, at most %d are promised", r.PeakMiB, mostMiB))
	}
	return out
}

// show writes servers beside each other.
func show(w io.Writer, reports []*report) {
	fmt.Fprintf(w, "%-26s", "")
	for _, r := range reports {
		fmt.Fprintf(w, "  | %-41s", fmt.Sprintf("%s, %d models", r.Server, r.Models))
	}
	fmt.Fprintf(w, "\n%-26s", "")
	for range reports {
		fmt.Fprintf(w, "  | %8s %10s %10s %10s", "req/s", "p50 ms", "p99 ms", "statements")
	}
	for _, o := range operations {
		fmt.Fprintf(w, "\n%-26s", o.name)
		for _, r := range reports {
			f, ok := r.Figures[o.name]
			if !ok {
				fmt.Fprintf(w, "  | %-41s", "it does not know filters")
				continue
			}
			statements := "not seen"
			if f.Statements > 0 {
				statements = fmt.Sprintf("%.1f", f.Statements)
			}
			fmt.Fprintf(w, "  | %8.0f %10.2f %10.2f %10s", f.PerSecond, f.P50, f.P99, statements)
		}
	}
	fmt.Fprintf(w, "\n%-26s", "memory at start, at most")
	for _, r := range reports {
		fmt.Fprintf(w, "  | %-41s", fmt.Sprintf("%.0f MiB, %.0f MiB", r.StartMiB, r.PeakMiB))
	}
	fmt.Fprintln(w)
}

func save(reports []*report, path string) error {
	text, err := json.MarshalIndent(reports, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
