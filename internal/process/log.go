// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
)

// LogOptions says what a log shows. Messages about them name the flags --log-level and --log-format.
type LogOptions struct {
	// Level is debug, info, warn or error; Format is json or text.
	Level, Format string
	// Detail recognises records that are worth no more than the level debug, whatever they say of themselves; nil: none.
	Detail func(slog.Record) bool
}

// NewLogHandler writes one structured line per record.
func NewLogHandler(w io.Writer, o LogOptions) (slog.Handler, error) {
	var least slog.Level
	switch o.Level {
	case "debug", "info", "warn", "error":
		if err := least.UnmarshalText([]byte(o.Level)); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("--log-level %q is unknown; use debug, info, warn or error", o.Level)
	}
	options := &slog.HandlerOptions{Level: least, ReplaceAttr: plainLevel}
	switch o.Format {
	case "json":
		return quiet{slog.NewJSONHandler(w, options), o.Detail}, nil
	case "text":
		return quiet{slog.NewTextHandler(w, options), o.Detail}, nil
	}
	return nil, fmt.Errorf("--log-format %q is unknown; use json or text", o.Format)
}

// SetLog sends the lines of slog and of the standard logger through the handler. The latter come from HTTP servers that
// have a quarrel with a client.
func SetLog(handler slog.Handler) *slog.Logger {
	log := slog.New(handler)
	slog.SetLogLoggerLevel(slog.LevelWarn)
	slog.SetDefault(log)
	return log
}

// plainLevel folds the finer levels that libraries use below info into debug.
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

// quiet takes what is nobody's fault, and what the program says is a detail, down to debug.
type quiet struct {
	slog.Handler
	detail func(slog.Record) bool
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if hungUp(r) || q.detail != nil && q.detail(r) {
		r.Level = min(r.Level, slog.LevelDebug)
		if !q.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quiet{q.Handler.WithAttrs(attrs), q.detail}
}

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name), q.detail} }

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
