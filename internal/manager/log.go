// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	if fromLibrary(r.PC) && (r.Level < slog.LevelWarn || farewell(r)) || hungUp(r) {
		r.Level = min(r.Level, slog.LevelDebug)
		if !q.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

// farewell recognises the errors that libraries report at an orderly end: giving the lease back counts as losing it, and
// a request or a cache that was under way when the process stopped comes back as cancelled, or as one that never came. A
// loss that matters comes back from Run.
func farewell(r slog.Record) bool {
	found := false
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		found = ok && (errors.Is(err, context.Canceled) || r.Message == afterStop && err.Error() == "leader election lost" ||
			r.Message == noInformer && apierrors.IsTimeout(err))
		return !found
	})
	return found
}

// afterStop is how controller-runtime begins a line about what went wrong while it stopped.
const afterStop = "error received after stop sequence was engaged"

// noInformer is how controller-runtime tells that a cache was given up before it was filled.
const noInformer = "failed to get informer from cache"

// hungUp recognises a TLS handshake that ended because one side went away: a client or a probe that closed its connection,
// or this server when it stops. A handshake in which one side refused the other is not among them. The lines come from
// net/http by way of the standard logger, which tells no place in the code.
func hungUp(r slog.Record) bool {
	if r.PC != 0 || !strings.HasPrefix(r.Message, "http: TLS handshake error from ") {
		return false
	}
	for _, reason := range []string{
		": " + context.Canceled.Error(), ": " + io.EOF.Error(), ": " + io.ErrUnexpectedEOF.Error(), ": " + net.ErrClosed.Error(),
		": " + syscall.ECONNRESET.Error(), ": " + syscall.EPIPE.Error(),
	} {
		if strings.HasSuffix(r.Message, reason) {
			return true
		}
	}
	return false
}

// fromLibrary tells by the place in the code where the line was written.
func fromLibrary(pc uintptr) bool {
	if pc == 0 {
		return false
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return strings.HasPrefix(frame.Function, "sigs.k8s.io/") || strings.HasPrefix(frame.Function, "k8s.io/")
}
