// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/placement"
)

const now = 1_700_000_000_000

func ago(d time.Duration) int64 { return now - d.Milliseconds() }

func TestLoadTimes(t *testing.T) {
	if got := NewLoadTimes(0).AssumeLoaded("x"); got != 3*time.Second {
		t.Errorf("with a short time-out %v is assumed", got)
	}
	l := NewLoadTimes(90 * time.Second)
	want := []time.Duration{ // of loads that all take 3 s
		30 * time.Second, 21 * time.Second, 15 * time.Second, 11 * time.Second, 3 * time.Second, 3 * time.Second,
	}
	for n, w := range want {
		if got := l.AssumeLoaded("a"); got != w {
			t.Errorf("after %d samples %v is assumed, want %v", n, got, w)
		}
		l.Loaded("a", 3*time.Second)
	}
	if got := l.AssumeLoaded("b"); got != l.Initial() {
		t.Errorf("%v is assumed of another type", got)
	}
}

// TestLoadTimesSpread compares the running figures with those computed from all samples.
func TestLoadTimesSpread(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	l := NewLoadTimes(time.Minute)
	var all []float64
	for n := 1; n <= 60; n++ {
		took := time.Duration(r.IntN(10_000)) * time.Millisecond
		l.Loaded("a", took)
		all = append(all, float64(took.Milliseconds()))
		if n < 4 || n%4 != 0 {
			continue
		}
		var mean, variance float64
		for _, x := range all {
			mean += x / float64(n)
		}
		for _, x := range all {
			variance += (x - mean) * (x - mean) / float64(n)
		}
		factor := 3.0
		if n <= 20 {
			factor = 5
		}
		want := mean + factor*math.Sqrt(variance)
		if got := float64(l.AssumeLoaded("a")) / float64(time.Millisecond); math.Abs(got-want) > 1 {
			t.Errorf("after %d samples %.0f ms, want %.0f", n, got, want)
		}
	}
}

func TestLoadTimesAreBounded(t *testing.T) {
	l := NewLoadTimes(time.Minute)
	for n := range mostTypes + 10 {
		l.Loaded(fmt.Sprint(n), time.Second)
	}
	if len(l.types) != mostTypes {
		t.Errorf("remembers %d types", len(l.types))
	}
}

func TestBusy(t *testing.T) {
	var b Busy
	if got := b.PerMinute(now, 100); got != 0 {
		t.Errorf("%d per minute of nothing known", got)
	}
	// 10 requests a minute for an hour, then 100.
	count := int64(0)
	for minute := range int64(61) {
		b.Sample(minute*60_000, count)
		count += 10
	}
	end := int64(60 * 60_000)
	if got := b.PerMinute(end, count); got != 11 { // 70 in 6 minutes: the last ten came at once
		t.Errorf("%d per minute of a steady 10", got)
	}
	for minute := int64(61); minute <= 67; minute++ {
		count += 90
		b.Sample(minute*60_000, count)
		count += 10
	}
	if got := b.PerMinute(67*60_000+30_000, count); got < 90 || got > 110 {
		t.Errorf("%d per minute, want about the 100 of the last minutes", got)
	}
	var young Busy
	young.Sample(1000, 0)
	if got := young.PerMinute(31_000, 50); got != 100 {
		t.Errorf("%d per minute after half a minute, want 100", got)
	}
	if got := young.PerMinute(31_000, 0); got != 0 {
		t.Errorf("%d per minute of an idle one", got)
	}
}

// TestBusyAgainstList: the ring answers what a list of all samples would.
func TestBusyAgainstList(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		var b Busy
		var all []sample
		at, count := int64(r.IntN(100_000)), int64(0)
		for range r.IntN(60) {
			b.Sample(at, count)
			all = append(all, sample{at, count})
			at += 60_000 + r.Int64N(5000)
			count += r.Int64N(500)
		}
		want := int64(0)
		if len(all) > 0 {
			from := all[0]
			for _, s := range all {
				if at-s.at >= busyOver.Milliseconds() {
					from = s
				}
			}
			want = (count - from.count) * 60_000 / (at - from.at)
		}
		if got := b.PerMinute(at, count); got != want {
			t.Fatalf("seed %d with %d samples: %d, want %d", seed, len(all), got, want)
		}
	}
}

func TestPublish(t *testing.T) {
	base := placement.Instance{ID: "i", LRUTime: ago(time.Hour), Count: 100, Capacity: 10000, Used: 5000, LoadThreads: 2, LoadsInProgress: 1, RPM: 1000}
	for name, c := range map[string]struct {
		change func(*placement.Instance)
		after  time.Duration
		want   bool
	}{
		"nothing":            {func(*placement.Instance) {}, time.Minute, false},
		"nothing for long":   {func(*placement.Instance) {}, time.Hour, false},
		"a little":           {func(i *placement.Instance) { i.RPM++ }, time.Minute, false},
		"a little for long":  {func(i *placement.Instance) { i.RPM++ }, 161 * time.Second, true},
		"ends":               {func(i *placement.Instance) { i.Shutdown = true }, time.Minute, true},
		"ends too soon":      {func(i *placement.Instance) { i.Shutdown = true }, time.Second, false},
		"capacity":           {func(i *placement.Instance) { i.Capacity -= 200 }, time.Minute, true},
		"less capacity":      {func(i *placement.Instance) { i.Capacity -= 199 }, time.Minute, false},
		"used":               {func(i *placement.Instance) { i.Used = 6000 }, time.Minute, true},
		"less used":          {func(i *placement.Instance) { i.Used = 5999 }, time.Minute, false},
		"oldest":             {func(i *placement.Instance) { i.LRUTime += 20_000 }, time.Minute, true},
		"less old":           {func(i *placement.Instance) { i.LRUTime += 19_999 }, time.Minute, false},
		"models":             {func(i *placement.Instance) { i.Count = 90 }, time.Minute, true},
		"fewer models":       {func(i *placement.Instance) { i.Count = 91 }, time.Minute, false},
		"no loads":           {func(i *placement.Instance) { i.LoadsInProgress = 0 }, time.Minute, true},
		"no free slot":       {func(i *placement.Instance) { i.LoadsInProgress = 2 }, time.Minute, true},
		"more threads":       {func(i *placement.Instance) { i.LoadThreads = 3 }, time.Minute, true},
		"full":               {func(i *placement.Instance) { i.Used = 5901; i.Capacity = 9900 }, time.Minute, false},
		"requests":           {func(i *placement.Instance) { i.RPM = 1100 }, time.Minute, true},
		"fewer requests":     {func(i *placement.Instance) { i.RPM = 1099 }, time.Minute, false},
		"version only":       {func(i *placement.Instance) { i.Version++ }, time.Minute, false},
		"labels, after long": {func(i *placement.Instance) { i.Labels = []string{"x"} }, time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			current := base
			c.change(&current)
			if got := Publish(&base, &current, ago(c.after), placement.View{Now: now, MinSpace: 100}); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
	if !Publish(nil, &base, now, placement.View{Now: now}) {
		t.Error("an instance of which nothing is known is not published")
	}
	quiet, busier := base, base
	quiet.RPM, busier.RPM = 1, 4
	if Publish(&quiet, &busier, ago(time.Minute), placement.View{Now: now, MinSpace: 100}) {
		t.Error("three requests per minute are told to everybody")
	}
	nearly, full := base, base
	nearly.Used, full.Used = 9900, 9901
	if !Publish(&nearly, &full, ago(time.Minute), placement.View{Now: now, MinSpace: 100}) {
		t.Error("nobody hears that it is full")
	}
	busy, queue := base, base
	busy.LoadsInProgress, queue.LoadsInProgress = 3, 6
	if !Publish(&busy, &queue, ago(time.Minute), placement.View{Now: now, MinSpace: 100}) {
		t.Error("nobody hears of a growing queue")
	}
	young, moved := base, base
	young.LRUTime, moved.LRUTime = ago(32*time.Second), ago(30*time.Second)
	if !Publish(&young, &moved, ago(time.Minute), placement.View{Now: now, MinSpace: 100}) {
		t.Error("nobody hears that young models are given up")
	}
}

func TestPattern(t *testing.T) {
	minute := func(m float64) int64 { return now + int64(m*60_000) }
	for name, c := range map[string]struct {
		uses []float64 // minutes
		want bool      // of the last one
	}{
		"first":             {[]float64{0}, false},
		"soon after":        {[]float64{0, 6.9}, false},
		"after a while":     {[]float64{0, 7}, true},
		"after 40 minutes":  {[]float64{0, 40}, true},
		"long after":        {[]float64{0, 40.1}, false},
		"the later counts":  {[]float64{0, 5, 44}, true},
		"an earlier counts": {[]float64{0, 10, 12}, true},
		"all the time":      {[]float64{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var p Pattern
			var got bool
			for _, m := range c.uses {
				got = p.Used(minute(m), SecondCopy)
			}
			if got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// peers are so many instances without the model that do nothing.
func peers(n int) []Peer {
	var list []Peer
	for i := range n {
		list = append(list, Peer{ID: fmt.Sprint("p", i)})
	}
	return list
}

func TestScaleUp(t *testing.T) {
	base := Demand{Now: now, Tick: RateTick, Threshold: 2000, Window: SecondCopy, Started: []int64{ago(time.Hour)}, AssumeLoaded: 5 * time.Second,
		LRUTime: ago(time.Hour), FreeShare: 0.5, Peers: peers(5)}
	for name, c := range map[string]struct {
		change func(*Demand)
		want   Growth
	}{
		"little used":                  {func(d *Demand) { d.RPM = 1999 }, Growth{}},
		"again and again":              {func(d *Demand) { d.RPM = 1; d.Again = true }, Growth{Copies: 1}},
		"again, two copies":            {func(d *Demand) { d.Again = true; d.Started = append(d.Started, ago(time.Hour)) }, Growth{}},
		"again, nobody else":           {func(d *Demand) { d.Again = true; d.Peers = nil }, Growth{}},
		"again, no space":              {func(d *Demand) { d.Again = true; d.FreeShare = 0.09 }, Growth{}},
		"again, old models":            {func(d *Demand) { d.Again = true; d.FreeShare = 0; d.LRUTime = ago(6*time.Hour + time.Second) }, Growth{Copies: 1}},
		"again, not so old":            {func(d *Demand) { d.Again = true; d.FreeShare = 0; d.LRUTime = ago(6 * time.Hour) }, Growth{}},
		"one more":                     {func(d *Demand) { d.RPM = 2000 }, Growth{Copies: 1}},
		"two more":                     {func(d *Demand) { d.RPM = 5999 }, Growth{Copies: 2}},
		"a third of the cluster":       {func(d *Demand) { d.RPM = 20000; d.Peers = peers(11) }, Growth{Copies: 4}},
		"never less than asked for":    {func(d *Demand) { d.RPM = 20000; d.Peers = peers(3) }, Growth{Copies: 2}},
		"all have it":                  {func(d *Demand) { d.RPM = 20000; d.Peers = []Peer{{ID: "a", Has: true}} }, Growth{}},
		"a copy has just been started": {func(d *Demand) { d.RPM = 9000; d.Started = append(d.Started, ago(29*time.Second)) }, Growth{}},
		"a copy was started":           {func(d *Demand) { d.RPM = 2000; d.Started = append(d.Started, ago(30*time.Second)) }, Growth{Copies: 1}},
		"too busy": {func(d *Demand) {
			d.RPM = 4000
			d.Peers = []Peer{{ID: "a", RPM: 8001}, {ID: "b", RPM: 8000}}
		}, Growth{Copies: 1, TooBusy: []string{"a"}}},
		"busy here too": {func(d *Demand) {
			d.RPM, d.SelfRPM = 4000, 20000
			d.Peers = []Peer{{ID: "a", RPM: 16001}, {ID: "b", RPM: 16000}}
		}, Growth{Copies: 1, TooBusy: []string{"a"}}},
		"too busy and has it, counted once": {func(d *Demand) {
			d.RPM = 4000
			d.Peers = []Peer{{ID: "a", RPM: 9000, Has: true}, {ID: "b"}, {ID: "c"}}
		}, Growth{Copies: 2, TooBusy: []string{"a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := base
			c.change(&d)
			if diff := cmp.Diff(c.want, ScaleUp(d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRates(t *testing.T) {
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"100 in 10 s", RPM(100, 10*time.Second), 600},
		{"in no time", RPM(100, 0), 0},
		{"a threshold of 1", Threshold(1), 10},
		{"a threshold", Threshold(2000), 2000},
		// 4 at once, 10 ms each: 24000 a minute when busy all the time.
		{"latency", LatencyThreshold(4, 50, 50*100, 90), 21600},
		{"latency of nothing", LatencyThreshold(4, 0, 0, 90), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.got, c.want)
		}
	}
	if Heavy(1500, 2000) || !Heavy(1501, 2000) {
		t.Error("heavy is not above three quarters")
	}
}

func TestScaleDown(t *testing.T) {
	state := State{Now: now, FreeShare: 0.05, LRUTime: ago(20 * time.Hour), Capacity: 1000, Tick: RateTick}
	second := Copy{ID: "m", Weight: 1, Copies: 2, WorsePlace: true, LastUsed: ago(3 * time.Hour), Threshold: 2000}
	third := Copy{ID: "m", Weight: 1, Copies: 3, LastUsed: ago(time.Second), LastHeavy: ago(3 * time.Hour), LastLoad: ago(time.Hour),
		LastUnload: ago(time.Hour), RPM: 1333, Threshold: 2000, Queued: 1}
	for name, c := range map[string]struct {
		copy   Copy
		change func(*Copy, *State)
		want   bool
	}{
		"second, unused":                   {second, func(*Copy, *State) {}, true},
		"second, the better place":         {second, func(c *Copy, _ *State) { c.WorsePlace = false }, false},
		"second, within a tenth":           {second, func(c *Copy, _ *State) { c.LastUsed = ago(2 * time.Hour) }, false},
		"second, never beyond ten hours":   {second, func(c *Copy, s *State) { c.LastUsed = ago(11 * time.Hour); s.LRUTime = ago(1000 * time.Hour) }, true},
		"second, ten hours at most":        {second, func(c *Copy, s *State) { c.LastUsed = ago(10 * time.Hour); s.LRUTime = ago(1000 * time.Hour) }, false},
		"the only one":                     {second, func(c *Copy, _ *State) { c.Copies = 1 }, false},
		"there is space":                   {second, func(_ *Copy, s *State) { s.FreeShare = 0.06 }, false},
		"too large for a run":              {second, func(c *Copy, _ *State) { c.Weight = 51 }, false},
		"third":                            {third, func(*Copy, *State) {}, true},
		"third, never heavy":               {third, func(c *Copy, _ *State) { c.LastHeavy, c.LastUnload, c.LastLoad = 0, 0, 0 }, true},
		"third, another went":              {third, func(c *Copy, _ *State) { c.LastUnload = ago(80 * time.Second) }, false},
		"third, one came":                  {third, func(c *Copy, _ *State) { c.LastLoad = ago(30 * time.Minute) }, false},
		"third, was heavy":                 {third, func(c *Copy, _ *State) { c.LastHeavy = ago(2 * time.Hour) }, false},
		"third, was heavy, models churn":   {third, func(c *Copy, s *State) { c.LastHeavy = ago(11 * time.Minute); s.LRUTime = ago(time.Hour) }, true},
		"third, was heavy minutes ago":     {third, func(c *Copy, s *State) { c.LastHeavy = ago(10 * time.Minute); s.LRUTime = ago(time.Hour) }, false},
		"third, heavy, very old models":    {third, func(c *Copy, s *State) { c.LastHeavy = ago(301 * time.Minute); s.LRUTime = ago(900 * time.Hour) }, true},
		"third, heavier within five hours": {third, func(c *Copy, s *State) { c.LastHeavy = ago(299 * time.Minute); s.LRUTime = ago(900 * time.Hour) }, false},
		"third, used":                      {third, func(c *Copy, _ *State) { c.RPM = 1334 }, false},
		"third, waited for":                {third, func(c *Copy, _ *State) { c.Queued = 2 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := state
			c.change(&c.copy, &s)
			if got := len(ScaleDown(s, []Copy{c.copy})) == 1; got != c.want {
				t.Errorf("goes: %v, want %v", got, c.want)
			}
		})
	}
}

// TestScaleDownPicks: oldest first, all of those with the same last use, and no more than a twentieth.
func TestScaleDownPicks(t *testing.T) {
	s := State{Now: now, LRUTime: ago(20 * time.Hour), Capacity: 1000, Tick: RateTick}
	var copies []Copy
	for _, id := range []string{"b", "a", "d", "c"} {
		copies = append(copies, Copy{ID: id, Weight: 15, Copies: 2, WorsePlace: true, LastUsed: ago(5 * time.Hour)})
	}
	copies = append(copies, Copy{ID: "z", Weight: 10, Copies: 2, WorsePlace: true, LastUsed: ago(6 * time.Hour)})
	var got []string
	for _, c := range ScaleDown(s, copies) {
		got = append(got, c.ID)
	}
	if diff := cmp.Diff([]string{"z", "a", "b"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
