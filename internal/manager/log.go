// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
)

// NewLogHandler writes one structured line per record. Messages name the flags.
func NewLogHandler(w io.Writer, level, format string) (slog.Handler, error) {
	var least slog.Level
	switch level {
	case "debug", "info", "warn", "error":
		if err := least.UnmarshalText([]byte(level)); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("--log-level %q is unknown; use debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: least, ReplaceAttr: plainLevel}
	switch format {
	case "json":
		return quiet{slog.NewJSONHandler(w, options)}, nil
	case "text":
		return quiet{slog.NewTextHandler(w, options)}, nil
	}
	return nil, fmt.Errorf("--log-format %q is unknown; use json or text", format)
}

// plainLevel folds the finer levels that Kubernetes libraries use below info into debug.
func plainLevel(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 || a.Key != slog.LevelKey {
		return a
	}
	level, ok := a.Value.Any().(slog.Level)
	if ok && level < slog.LevelInfo {
		level = slog.LevelDebug
	}
	return slog.String(slog.LevelKey, strings.ToLower(level.String()))
}

// quiet takes what libraries find worth telling for a detail: at the default level the log holds our own decisions, and
// everybody's warnings and errors.
type quiet struct{ slog.Handler }

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if (r.Level < slog.LevelWarn || farewell(r)) && fromLibrary(r.PC) {
		r.Level = min(r.Level, slog.LevelDebug)
		if !q.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

// farewell recognises the error that controller-runtime reports at every orderly end: giving the lease back counts as
// losing it. A loss that matters comes back from Run.
func farewell(r slog.Record) bool {
	if r.Message != "error received after stop sequence was engaged" {
		return false
	}
	lost := false
	r.Attrs(func(a slog.Attr) bool {
		lost = lost || a.Value.String() == "leader election lost"
		return !lost
	})
	return lost
}

// fromLibrary tells by the place in the code where the line was written.
func fromLibrary(pc uintptr) bool {
	if pc == 0 {
		return false
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return strings.HasPrefix(frame.Function, "sigs.k8s.io/") || strings.HasPrefix(frame.Function, "k8s.io/")
}
