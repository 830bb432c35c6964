// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit/redis"
)

// benchmark is a question and a report, by one after the other.
func benchmark(b *testing.B, c Counters) {
	b.Helper()
	limits := []Limit{{Tokens: 1 << 40, Window: time.Minute}, {Tokens: 1 << 40, Window: time.Hour}, {Tokens: 1 << 40, Window: 24 * time.Hour}}
	took := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		v, err := c.Reserve(context.Background(), alice, limits, Tokens{Prompt: 10, Completion: 100, Total: 110})
		if err != nil || !v.Allowed {
			b.Fatal(v, err)
		}
		if len(took) < cap(took) {
			took = append(took, time.Since(began))
		}
		if err := c.Settle(context.Background(), v.Hold, Tokens{Prompt: 10, Completion: 90, Total: 100}); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "reserve-p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "reserve-p99-ns")
}

func BenchmarkMemory(b *testing.B) { benchmark(b, NewMemory(0, nil)) }

func BenchmarkRedis(b *testing.B) { benchmark(b, open(b, redis.Start(b))) }
