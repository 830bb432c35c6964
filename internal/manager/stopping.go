// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"slices"

	"github.com/go-logr/logr"
)

// stoppedEarly are the words of controllers that were told to stop before their caches were full. Nothing is wrong then,
// and a person who reads the log of a rollout should not have to know that.
var stoppedEarly = []string{"Could not wait for Cache to sync", "error received after stop sequence was engaged"}

// quietStop is a log in which a stop in the middle of a start is no error.
func quietStop(ctx context.Context, log logr.Logger) logr.Logger {
	if log.GetSink() == nil {
		return log
	}
	return log.WithSink(stopSink{LogSink: log.GetSink(), stop: ctx})
}

type stopSink struct {
	logr.LogSink
	stop context.Context // only asked whether it has ended
}

// Error says once the process stops what is to be expected of it to those only who want to know everything.
func (s stopSink) Error(err error, message string, values ...any) {
	if s.stop.Err() == nil || !slices.Contains(stoppedEarly, message) {
		s.LogSink.Error(err, message, values...)
		return
	}
	const detail = 1
	if s.Enabled(detail) {
		s.Info(detail, message, append(slices.Clone(values), "err", err)...)
	}
}

func (s stopSink) WithValues(values ...any) logr.LogSink {
	return stopSink{LogSink: s.LogSink.WithValues(values...), stop: s.stop}
}

func (s stopSink) WithName(name string) logr.LogSink {
	return stopSink{LogSink: s.LogSink.WithName(name), stop: s.stop}
}
