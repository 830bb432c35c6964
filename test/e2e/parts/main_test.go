// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestAskedFor(t *testing.T) {
	for _, test := range []struct{ args, want, fails string }{
		{"sdk", "sdk", ""},
		{"debian mlmd tree", "debian mlmd tree", ""},
		{"all", "debian tree python sdk mlmd registry models postgres", ""},
		{"", "", "parts debian tree python"},
		{"sdk nothing", "", "parts debian tree python"},
	} {
		asked, err := askedFor(strings.Fields(test.args))
		var got []string
		for _, p := range asked {
			got = append(got, p.verb)
		}
		if strings.Join(got, " ") != test.want || (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: %v, %v", test.args, got, err)
		}
	}
	if failures := run(t.Context(), []string{"lock", "nothing"}, io.Discard); len(failures) != 1 || exitCode(failures) != 1 {
		t.Errorf("a set that does not exist: %v", failures)
	}
}

func TestExitCode(t *testing.T) {
	away, mistake := fmt.Errorf("sdk: %w", errUnavailable), errors.New("a mistake")
	for _, test := range []struct {
		failures []error
		want     int
	}{{nil, 0}, {[]error{away}, 3}, {[]error{away, mistake}, 1}, {[]error{mistake, away}, 1}} {
		if got := exitCode(test.failures); got != test.want {
			t.Errorf("%v: %d", test.failures, got)
		}
	}
}
