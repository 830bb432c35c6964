// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/maas/metering"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestOldUsageGoes: rows that are older than is wanted are removed at the start, those of other tenants and younger ones stay.
func TestOldUsageGoes(t *testing.T) {
	s := light(t)
	rows, ok := s.api.Usage.(*metering.SQL)
	if !ok {
		t.Fatal("usage is kept elsewhere")
	}
	now := time.Now().UTC().Truncate(time.Hour)
	row := func(tenant string, days int) metering.Row {
		return metering.Row{Key: metering.Key{Hour: now.AddDate(0, 0, -days), Tenant: tenant, Username: "ann"}, Sums: metering.Sums{Requests: 1, Total: int64(days)}}
	}
	if err := rows.Add(t.Context(), "b", []metering.Row{row(tenantName, 1), row(tenantName, 399), row(tenantName, 401), row("another", 401)}); err != nil {
		t.Fatal(err)
	}
	sum := func(tenant string) (n int64) {
		found, err := rows.Sum(t.Context(), metering.Query{Tenant: tenant, From: now.AddDate(-3, 0, 0), To: now.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found {
			n += r.Total
		}
		return n
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- keepUsage(rows, tenantName, 400, slog.New(slog.DiscardHandler))(ctx) }()
	go func() { done <- keepUsage(rows, "another", 0, slog.New(slog.DiscardHandler))(ctx) }()
	testkit.Eventually(t, time.Minute, "old usage to be gone", func() error {
		if n := sum(tenantName); n != 400 {
			return context.DeadlineExceeded
		}
		return nil
	})
	stop()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := sum("another"); n != 401 {
		t.Errorf("another tenant has %d left", n)
	}
}
