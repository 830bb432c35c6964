// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// newLogHandler understands the two log flags.
func newLogHandler(w io.Writer, level, format string) (slog.Handler, error) {
	var l slog.Level
	switch level {
	case "debug", "info", "warn", "error":
		if err := l.UnmarshalText([]byte(level)); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("--log-level %q is unknown; use debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: l, ReplaceAttr: plainLevel}
	switch format {
	case "json":
		return slog.NewJSONHandler(w, options), nil
	case "text":
		return slog.NewTextHandler(w, options), nil
	}
	return nil, fmt.Errorf("--log-format %q is unknown; use json or text", format)
}

// plainLevel folds the finer levels that Kubernetes libraries use below info into debug.
func plainLevel(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.LevelKey {
		level, ok := a.Value.Any().(slog.Level)
		if ok && level < slog.LevelInfo {
			level = slog.LevelDebug
		}
		return slog.String(slog.LevelKey, strings.ToLower(level.String()))
	}
	return a
}

// setLog sends every line of the process through one handler, also those of libraries with a logger of their own. Lines
// of the standard logger come from HTTP servers that have a quarrel with a client.
func setLog(handler slog.Handler) logr.Logger {
	log := logr.FromSlogHandler(handler)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	slog.SetLogLoggerLevel(slog.LevelWarn)
	slog.SetDefault(slog.New(handler))
	return log
}
