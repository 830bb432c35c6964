// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"slices"
	"testing"
	"time"
)

// percentiles are told beside the mean.
func percentiles(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	if n := len(took); n > 0 {
		b.ReportMetric(float64(took[n/2].Nanoseconds()), "p50-ns")
		b.ReportMetric(float64(took[n*99/100].Nanoseconds()), "p99-ns")
	}
}
