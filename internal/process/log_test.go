// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// logged returns level and message of each line.
func logged(t *testing.T, o LogOptions, write func(slog.Handler)) []string {
	t.Helper()
	var out bytes.Buffer
	o.Format = "json"
	handler, err := NewLogHandler(&out, o)
	if err != nil {
		t.Fatal(err)
	}
	write(handler)
	var lines []string
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q is not JSON: %v", line, err)
		}
		lines = append(lines, fields[slog.LevelKey].(string)+" "+fields[slog.MessageKey].(string))
	}
	return lines
}

func TestLogLevels(t *testing.T) {
	write := func(h slog.Handler) {
		log := slog.New(h).With("a", 1).WithGroup("g")
		log.Log(t.Context(), slog.LevelDebug-4, "finer")
		log.Debug("debug")
		log.Info("a detail")
		log.Warn("warn")
		log.Error("error")
	}
	detail := func(r slog.Record) bool { return strings.Contains(r.Message, "detail") }
	for level, want := range map[string][]string{
		"debug": {"debug debug", "debug a detail", "warn warn", "error error"},
		"info":  {"warn warn", "error error"},
		"error": {"error error"},
	} {
		if diff := cmp.Diff(want, logged(t, LogOptions{Level: level, Detail: detail}, write)); diff != "" {
			t.Errorf("level %s (-want +got):\n%s", level, diff)
		}
	}
	for _, wrong := range []LogOptions{{Level: "loud", Format: "json"}, {Level: "info", Format: "xml"}} {
		if _, err := NewLogHandler(nil, wrong); err == nil {
			t.Errorf("%+v is taken", wrong)
		}
	}
}

// TestHandshakesThatNobodyIsToBlameFor: whoever went away is a detail; whoever was refused is not.
func TestHandshakesThatNobodyIsToBlameFor(t *testing.T) {
	for reason, want := range map[string]string{"EOF": "debug", "read: connection reset by peer": "debug", "remote error: tls: bad certificate": "warn"} {
		got := logged(t, LogOptions{Level: "debug"}, func(h slog.Handler) {
			r := slog.NewRecord(time.Now(), slog.LevelWarn, "http: TLS handshake error from 127.0.0.1:4: "+reason, 0)
			if err := h.Handle(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
		if len(got) != 1 || !strings.HasPrefix(got[0], want+" ") {
			t.Errorf("%s: wrote %q, want one line at %s", reason, got, want)
		}
	}
}
