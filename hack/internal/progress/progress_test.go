// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestFollowCountsPackagesAndPassesOnTheRest(t *testing.T) {
	in := strings.Join([]string{
		"internal/abi",
		"k8s.io/api/core/v1",
		"go: downloading example.com/x v1.0.0",
		"# example.com/x",
		"x.go:3:2: undefined: y",
	}, "\n")
	var out bytes.Buffer
	got := follow(strings.NewReader(in), &out, nil, nil)
	if got != 2 {
		t.Errorf("counted %d packages, want 2", got)
	}
	want := "go: downloading example.com/x v1.0.0\n# example.com/x\nx.go:3:2: undefined: y\n"
	if out.String() != want {
		t.Errorf("passed on %q, want %q", out.String(), want)
	}
}

func TestFollowReportsWhileItWaits(t *testing.T) {
	from, feed := io.Pipe()
	shown, to := io.Pipe()
	tick := make(chan time.Time)
	done := make(chan int)
	go func() { done <- follow(from, to, tick, func() time.Duration { return 90 * time.Second }) }()

	if _, err := io.WriteString(feed, "internal/abi\n"); err != nil {
		t.Fatal(err)
	}
	// The counter may be asked before the line has been counted; a second line orders the two.
	if _, err := io.WriteString(feed, "internal/cpu\n"); err != nil {
		t.Fatal(err)
	}
	go func() { tick <- time.Time{} }()
	buf := make([]byte, 200)
	n, err := shown.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(buf[:n]); !strings.Contains(got, "packages, 1m30s so far") {
		t.Errorf("said %q", got)
	}
	if err := feed.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got != 2 {
		t.Errorf("counted %d packages, want 2", got)
	}
}

func TestRunReturnsTheCommandsFailure(t *testing.T) {
	var out bytes.Buffer
	_, err := Run(exec.Command("sh", "-c", "echo it broke >&2; exit 3"), &out)
	if err == nil || !strings.Contains(out.String(), "it broke") {
		t.Errorf("error %v, output %q", err, out.String())
	}
}
