// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelplane/modelplane/bench/load"
	"github.com/modelplane/modelplane/internal/maas/keys"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

// TestMain lets the test's program be the model, too.
func TestMain(m *testing.M) {
	if address := os.Getenv(modelVariable); address != "" {
		os.Exit(complain(modelProcess(address)))
	}
	testkit.Main(m)
}

// TestCounts goes through all phases with few keys and subscriptions, and checks what does not depend on the machine. Then it puts
// the load on one of the servers as on a foreign one.
func TestCounts(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := options{
		keys: 3_000, hot: 50, cold: 500, sizes: []int{5, 40}, clients: 4, each: 300 * time.Millisecond,
		rate: 50, streams: 6, prompt: 220 << 10, held: 4 << 20, say: t.Logf,
	}
	b := o.newBed(t, self, checkout.Program(t, "modelplane"))
	r := o.measure(t, b)
	for _, broken := range r.counts() {
		t.Error(broken)
	}
	if r.Validate.Noted != o.hot+o.cold || r.Validate.Remembered < float64(o.hot+o.cold) {
		t.Errorf("%d uses are noted, %.0f keys are remembered", r.Validate.Noted, r.Validate.Remembered)
	}
	if all := r.Processor.All; all.HeldMiB < float64(o.streams*o.prompt)/(1<<20)*0.9 {
		t.Errorf("not all prompts were there at once: %+v", all)
	}
	r.show(io.Discard)

	token, known := filepath.Join(t.TempDir(), "token"), b.file("keys", []byte(keyOf(1)+"\n\n"+keyOf(2)+"\n"))
	if err := os.WriteFile(token, []byte(b.token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := foreign{target: b.servers[0].internal, tokenFile: token, insecure: true, keysFile: known, user: "somebody", groups: staff + "," + teamOf(1), model: modelSpace + "/" + modelOf(1)}
	got, err := f.measure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]load.Figures{"good keys": *got.Hit, "one unknown key": got.Miss, "unknown keys": got.Unknown, "a subscription": *got.Select} {
		if f.Requests == 0 || f.Failures() > 0 {
			t.Errorf("%s: %+v", what, f)
		}
	}
	f.model = "nobody/has-it"
	if got, err := f.measure(t.Context(), o); err != nil || got.Select.Requests > 0 || !strings.Contains(got.Select.First, "not_found") {
		t.Errorf("a wrong answer counts: %+v (%v)", got.Select, err)
	}
}

// TestSeed: keys are of the form that is made, different ones, and each is asked for once where it has to be.
func TestSeed(t *testing.T) {
	made, err := keys.Mint()
	if err != nil {
		t.Fatal(err)
	}
	one, again, other := keyOf(7), keyOf(7), keyOf(8)
	if len(one) != len(made.Reveal()) || one == other || one != again {
		t.Errorf("%d letters instead of %d", len(keyOf(7)), len(made.Reveal()))
	}
	if _, err := keys.Parse(keyOf(7)); err != nil {
		t.Error(err)
	}
	o := options{keys: 1000, hot: 10}
	seen := map[int]bool{}
	for turn := range o.keys - o.hot {
		seen[o.scattered(turn)] = true
	}
	if len(seen) != o.keys-o.hot || seen[o.hot-1] || !seen[o.keys-1] {
		t.Errorf("%d keys are asked for", len(seen))
	}
}

// TestSlow: all but the last byte is there at once.
func TestSlow(t *testing.T) {
	release := make(chan struct{})
	s := &slow{[]byte("prompt"), release}
	head := make([]byte, 5)
	if _, err := io.ReadFull(s, head); err != nil || string(head) != "promp" {
		t.Errorf("%q (%v)", head, err)
	}
	close(release)
	if rest, err := io.ReadAll(s); err != nil || string(rest) != "t" {
		t.Errorf("%q (%v)", rest, err)
	}
}

// TestPromises can be broken.
func TestPromises(t *testing.T) {
	fine := load.Figures{Requests: 1, P50: 1}
	good := report{
		Validate:  validation{Hit: fine, HitAsked: mostAsked, Cold: fine, ColdAsked: 1, Miss: fine, Unknown: fine, UnknownAsked: 1, Remembered: mostRemembered},
		Selects:   []selects{{Turns: fine, Rush: fine, PeakMiB: mostAPI}, {Turns: fine, Rush: fine}},
		Processor: processor{Plain: fine, Checked: fine, PlainStreams: streams{Whole: fine}, CheckedStreams: streams{Whole: fine}, Room: 4, PeakMiB: mostProcessor},
	}
	good.Processor.All = holding{Answered: 2, HeldMiB: 4}
	good.Processor.TooMany = holding{Answered: 1, Refused: 1, HeldMiB: 4}
	if got := good.broken(); len(got) != 0 {
		t.Errorf("kept promises are broken: %v", got)
	}
	bad := good
	bad.Selects = []selects{{Turns: fine, Rush: fine, PeakMiB: mostAPI + 1, Complaints: []string{"lost"}}, {Turns: load.Figures{Requests: 1, P50: 2}, Rush: load.Figures{Failed: map[string]int{"failed": 1}}}}
	bad.Validate.HitAsked, bad.Validate.MissAsked, bad.Validate.ColdAsked, bad.Validate.UnknownAsked = 0.3, 0.3, 0.9, 2
	bad.Validate.Remembered, bad.Validate.Forgotten = mostRemembered+1, 1
	bad.Processor.All, bad.Processor.TooMany = holding{Failed: 1, HeldMiB: 5, Refused: 1}, holding{Answered: 1, HeldMiB: 4}
	bad.Processor.PeakMiB, bad.Processor.LeftBytes, bad.Processor.AddedP50, bad.Processor.Complaints = mostProcessor+1, 1, mostAdded+1, []string{"ERROR"}
	const all = 3 + 4 + 2 + 3 + 4 + 2
	if got := bad.broken(); len(got) != all {
		t.Errorf("%d broken promises are %d: %v", all, len(got), got)
	}
}

func TestAnswersOfSelection(t *testing.T) {
	for turn := range 60 {
		q := ask(turn, 40)
		if q.answer == "" || len(q.Groups) != 2 || (q.Named != "") != (turn%3 == 1) {
			t.Errorf("%+v", q)
		}
	}
	if n := bestFor(modelOf(3), 40); n != 36 { // 36 has model 16, 3 and 9
		t.Errorf("the best is %d", n)
	}
}
