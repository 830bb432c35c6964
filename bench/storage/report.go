// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
)

// report is what was measured.
type report struct {
	Plan       plan    `json:"-"`
	Size       int64   `json:"largeBytes"`
	Files      int     `json:"smallFiles"`
	Small      int64   `json:"smallBytes"`
	LargePlain figures `json:"largePlain"`
	LargeOurs  figures `json:"largeOurs"`
	SmallPlain figures `json:"smallPlain"`
	SmallOurs  figures `json:"smallOurs"`
}

// Promises that do not depend on the machine.
const (
	// mostMemory bounds what a download needs, however large the model is.
	mostMemory = 160 << 20
	// segment is how much one request asks for; a large file needs one request for each, and one to find it.
	segment = 16 << 20
)

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%-34s %10s %12s %10s %10s %8s\n", "", "seconds", "MB/s", "requests", "peak RSS", "ratio")
	line := func(name string, f, base figures) {
		ratio, memory := "", ""
		if base.Seconds > 0 {
			ratio = fmt.Sprintf("%.2f", base.Seconds/f.Seconds)
			memory = fmt.Sprintf("%d MiB", f.PeakRSS>>20)
		}
		fmt.Fprintf(w, "%-34s %10.2f %12.0f %10d %10s %8s\n", name, f.Seconds, f.PerSec/1e6, f.Requests, memory, ratio)
	}
	large := fmt.Sprintf("one file of %d MB", r.Size/1e6)
	small := fmt.Sprintf("%d files of %d KiB", r.Files, r.Small>>10)
	line(large+", one stream", r.LargePlain, figures{})
	line(large+", initializer", r.LargeOurs, r.LargePlain)
	line(small+", one stream", r.SmallPlain, figures{})
	line(small+", initializer", r.SmallOurs, r.SmallPlain)
}

// broken tells which promises were not kept.
func (r *report) broken() error {
	var out []string
	for name, f := range map[string]figures{"large": r.LargeOurs, "small": r.SmallOurs} {
		if f.PeakRSS > mostMemory {
			out = append(out, fmt.Sprintf("the %s download needed %d MiB, at most %d are promised", name, f.PeakRSS>>20, mostMemory>>20))
		}
	}
	if most := (r.Size+segment-1)/segment + 2; r.LargeOurs.Requests > most {
		out = append(out, fmt.Sprintf("the large file took %d requests, at most %d are promised", r.LargeOurs.Requests, most))
	}
	if most := int64(r.Files) + int64(r.Files)/1000 + 3; r.SmallOurs.Requests > most {
		out = append(out, fmt.Sprintf("the small files took %d requests, at most %d are promised", r.SmallOurs.Requests, most))
	}
	if len(out) > 0 {
		return fmt.Errorf("%s", strings.Join(out, "; "))
	}
	return nil
}
