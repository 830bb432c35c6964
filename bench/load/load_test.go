// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantiles(t *testing.T) {
	var times []time.Duration
	for i := range 100 {
		times = append(times, time.Duration(100-i)*time.Millisecond)
	}
	p50, p99, most := Quantiles(times)
	if diff := cmp.Diff([]float64{50, 99, 100}, []float64{p50, p99, most}); diff != "" {
		t.Error(diff)
	}
}

// TestRun: what the figures say is what the server saw, and failures are counted by their kinds.
func TestRun(t *testing.T) {
	var asked atomic.Int64
	fine := func(context.Context, int) error {
		asked.Add(1)
		return nil
	}
	for name, test := range map[string]struct {
		load Load
		want int
	}{
		"so many a second": {Load{Clients: 3, Rate: 500, Duration: 300 * time.Millisecond}, 150},
		"so many":          {Load{Clients: 3, Most: 70}, 70},
	} {
		asked.Store(0)
		if f := test.load.Run(t.Context(), fine); f.Requests != test.want || asked.Load() != int64(test.want) || f.Failures() != 0 || f.PerSecond <= 0 || f.P99 < f.P50 || f.Max < f.P99 {
			t.Errorf("%s: %+v, and %d were asked", name, f, asked.Load())
		}
	}
	late := func(context.Context, int) error {
		<-time.After(5 * time.Millisecond)
		return nil
	}
	if f := (Load{Clients: 1, Rate: 1000, Most: 20}).Run(t.Context(), late); f.Max < 50 {
		t.Errorf("whoever waits for a turn is not late: %+v", f)
	}
	wrong := func(_ context.Context, turn int) error {
		if turn%2 == 1 {
			return errors.New("odd")
		}
		return nil
	}
	f := Load{Clients: 2, Most: 10, Kind: func(err error) string { return "is " + err.Error() }}.Run(t.Context(), wrong)
	if diff := cmp.Diff(map[string]int{"is odd": 5}, f.Failed); diff != "" || f.Requests != 5 || f.First != "odd" {
		t.Errorf("%+v %s", f, diff)
	}
}

// TestTurns: as many requests one way as the other, and none after the first that fails.
func TestTurns(t *testing.T) {
	var asked [2]int
	way := func(n int) Ask {
		return func(context.Context, int) error {
			asked[n]++
			if asked[n] > 500 {
				return errors.New("enough")
			}
			return nil
		}
	}
	if _, err := Turns(t.Context(), time.Hour, way(0), way(1)); err == nil || asked[0]-asked[1] > 1 || asked[1]-asked[0] > 1 {
		t.Errorf("%v after %v", err, asked)
	}
	fine := []Ask{func(context.Context, int) error { return nil }, func(context.Context, int) error { return nil }}
	got, err := Turns(t.Context(), 20*time.Millisecond, fine...)
	if err != nil || got[0].Requests == 0 || got[0].Requests != got[1].Requests || got[0].PerSecond != 0 {
		t.Errorf("%+v (%v)", got, err)
	}
}

func TestSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "figures.json")
	if err := Save(Figures{Requests: 2}, path); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || len(text) == 0 {
		t.Error(err)
	}
}
