// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/testkit"
)

// kept is a report in which every promise is kept to the limit.
func kept() *report {
	r := &report{Services: 1000, Ratio: 2, Floor: &floorResult{Seconds: 10, Made: []float64{1, 10}}, Ready: []float64{2, 20}}
	r.Make.Each = &perObject{Requests: mostRequests, Writes: 8}
	r.Make.Seconds = 20
	r.Touch = []touchPhase{{Field: "maxReplicas", phase: phase{Each: &perObject{Requests: mostTouchRequests}}}}
	r.Usage.PeakRSSMiB, r.RestartUsage.PeakRSSMiB = 150, 150
	return r
}

func TestPromises(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(r *report)
		want string
	}{
		{"kept", func(*report) {}, ""},
		{"writes", func(r *report) { r.Make.Each.Writes = 8.01 }, "writes per service: 8.01"},
		{"requests", func(r *report) { r.Make.Each.Requests = 10.5 }, "requests per service: 10.50"},
		{"idle", func(r *report) { r.Idle.Writes = 1 }, "writes while idle"},
		{"restart", func(r *report) { r.Restart.Writes = 1 }, "writes after a restart"},
		{"touch", func(r *report) { r.Touch[0].Each.Requests = 6 }, "maxReplicas"},
		{"memory", func(r *report) { r.Usage.PeakRSSMiB = 151 }, "151 MiB, want at most 150"},
		{"memory after a restart", func(r *report) { r.RestartUsage.PeakRSSMiB = 160 }, "160 MiB"},
		{"memory of many", func(r *report) { r.Services, r.Usage.PeakRSSMiB = 5000, 400 }, ""},
		{"memory of too many to promise", func(r *report) { r.Services, r.Usage.PeakRSSMiB = 5001, 4000 }, ""},
		{"ratio", func(r *report) { r.Ratio = 2.1 }, "2.10 times the floor"},
		{"no floor", func(r *report) { r.Ratio, r.Floor = 3, nil }, ""},
	} {
		r := kept()
		tc.edit(r)
		got := strings.Join(append(r.broken(), r.slow()...), "\n")
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: complaints %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestCountsOfAPhase(t *testing.T) {
	var p phase
	p.count(testkit.Counts{
		{Verb: "apply", Group: "apps", Resource: "deployments"}:                           10,
		{Verb: "get", Resource: "serviceaccounts"}:                                        5,
		{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}: 1,
	}, 10)
	want := phase{
		Requests: 16, Writes: 10, Each: &perObject{Requests: 1.6, Writes: 1},
		Calls: []calls{
			{Verb: "apply", Target: "apps/deployments", Count: 10, Each: 1},
			{Verb: "get", Target: "serviceaccounts", Count: 5, Each: 0.5},
			{Verb: "create", Target: "authorization.k8s.io/subjectaccessreviews", Count: 1, Each: 0.1},
		},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestPercentile(t *testing.T) {
	var sorted []time.Duration
	for i := 1; i <= 200; i++ {
		sorted = append(sorted, time.Duration(i)*time.Second)
	}
	for percent, want := range map[int]float64{50: 100, 99: 198, 100: 200} {
		if got := percentile(sorted, percent); got != want {
			t.Errorf("%d%%: %v, want %v", percent, got, want)
		}
	}
	if got := percentile(sorted[:1], 50); got != 1 {
		t.Errorf("of one: %v", got)
	}
}

func TestPlotIsWellFormed(t *testing.T) {
	for _, withFloor := range []bool{true, false} {
		r := kept()
		if !withFloor {
			r.Floor = nil
		}
		var out strings.Builder
		if err := r.plot(&out); err != nil {
			t.Fatal(err)
		}
		lines, decoder := 0, xml.NewDecoder(strings.NewReader(out.String()))
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("the plot is no XML: %v\n%s", err, out.String())
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "path" && len(e.Attr) == 4 {
				lines++
			}
		}
		if want := map[bool]int{true: 2, false: 1}[withFloor]; lines != want {
			t.Errorf("%d lines, want %d", lines, want)
		}
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; { // uses the processor
		_ = strings.Repeat("x", 1000)
	}
	u, err := usageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if u.CPUSeconds <= 0 || u.CPUSeconds > time.Hour.Seconds() || u.RSSMiB < 5 || u.PeakRSSMiB < u.RSSMiB {
		t.Errorf("this process uses %+v", u)
	}
	if got := statTicks("12 (a name) with) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0"); got != 42 {
		t.Errorf("%d ticks, want 42", got)
	}
	if _, err := usageOf(-1); err == nil {
		t.Error("a process that does not exist uses something")
	}
}
