// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/serving/activation"
)

// TestDesired plays seconds of traffic and looks at the number of pods at their end. The number follows at once.
func TestDesired(t *testing.T) {
	tuning := Tuning{Window: 60 * time.Second, Panic: 6 * time.Second, Idle: 90 * time.Second}
	calm := tuning
	calm.DownDelay = 30 * time.Second
	zero := activation.Settings{Metric: activation.Concurrency, Target: 10, Min: 0, Max: 5}
	two := activation.Settings{Metric: activation.RPS, Target: 100, Min: 2, Max: 4}
	soon := zero
	soon.IdleSeconds = 10
	type phase struct {
		seconds     int
		concurrency float64
		rps         float64
		unknown     bool // a replica did not answer
	}
	for name, c := range map[string]struct {
		settings activation.Settings
		tuning   Tuning
		begins   int32
		phases   []phase
		want     int32
	}{
		"a new leader takes nothing away":           {zero, tuning, 4, []phase{{seconds: 59}}, 4},
		"after a window what is too much goes":      {zero, tuning, 4, []phase{{seconds: 62}}, 1},
		"the last pod waits for idleness":           {zero, tuning, 1, []phase{{seconds: 62, concurrency: 1}, {seconds: 89}}, 1},
		"and then goes":                             {zero, tuning, 1, []phase{{seconds: 62, concurrency: 1}, {seconds: 91}}, 0},
		"as soon as the service says":               {soon, tuning, 1, []phase{{seconds: 61}}, 0},
		"a single short request keeps it":           {zero, tuning, 1, []phase{{seconds: 62}, {seconds: 1, concurrency: 0.001}, {seconds: 61}}, 1},
		"a replica that does not answer keeps it":   {zero, tuning, 1, []phase{{seconds: 82}, {seconds: 40, unknown: true}, {seconds: 30}}, 1},
		"at zero it stays at zero":                  {zero, tuning, 0, []phase{{seconds: 5}}, 0},
		"somebody comes":                            {zero, tuning, 0, []phase{{seconds: 1, concurrency: 1}}, 1},
		"many come at once":                         {zero, tuning, 1, []phase{{seconds: 62, concurrency: 1}, {seconds: 6, concurrency: 45}}, 5},
		"more than there may be":                    {zero, tuning, 1, []phase{{seconds: 6, concurrency: 500}}, 5},
		"a burst is not answered by taking pods":    {zero, tuning, 1, []phase{{seconds: 62, concurrency: 1}, {seconds: 6, concurrency: 45}, {seconds: 50, concurrency: 1}}, 5},
		"a slow rise is followed":                   {zero, tuning, 1, []phase{{seconds: 62, concurrency: 8}, {seconds: 62, concurrency: 15}}, 2},
		"requests per second":                       {two, tuning, 2, []phase{{seconds: 62, rps: 250}}, 3},
		"not below the least":                       {two, tuning, 4, []phase{{seconds: 150}}, 2},
		"fewer pods must have been enough for long": {two, calm, 4, []phase{{seconds: 62, rps: 350}, {seconds: 25, rps: 1}}, 4},
	} {
		var h history
		now, current := time.Unix(1000, 0), c.begins
		for _, p := range c.phases {
			for range p.seconds {
				now = now.Add(time.Second)
				h.add(sample{at: now, concurrency: p.concurrency, rps: p.rps}, p.unknown || p.concurrency+p.rps > 0, c.tuning)
				current = h.desired(now, c.settings, c.tuning, current, current)
			}
		}
		if current != c.want {
			t.Errorf("%s: %d pods, want %d", name, current, c.want)
		}
	}
}
