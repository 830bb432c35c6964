// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"log/slog"
	"time"
)

// forgetEvery is how often rows of usage are looked at, whether they are too old.
const forgetEvery = 6 * time.Hour

// forgetter removes rows of usage.
type forgetter interface {
	Forget(ctx context.Context, tenant string, before time.Time) (int64, error)
}

// keepUsage removes what is older than so many days, now and from time to time, until the context ends. Zero days keep all.
func keepUsage(rows forgetter, tenant string, days int, log *slog.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(forgetEvery)
		defer tick.Stop()
		for days > 0 {
			n, err := rows.Forget(ctx, tenant, time.Now().AddDate(0, 0, -days))
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				log.Warn("Old usage cannot be removed; it is tried again", "err", err.Error())
			case n > 0:
				log.Info("Old usage was removed", "rows", n, "days", days)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
		<-ctx.Done()
		return nil
	}
}
