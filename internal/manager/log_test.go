// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func TestLogLevels(t *testing.T) {
	for _, c := range []struct {
		level string
		want  []string
	}{
		{"error", []string{"error failed"}},
		{"info", []string{"info zero", "error failed"}},
		{"debug", []string{"info zero", "debug one", "debug four", "error failed"}},
	} {
		got := logged(t, c.level, func(log logr.Logger) {
			log.Info("zero", "key", "value")
			log.V(1).Info("one")
			log.V(4).Info("four")
			log.V(8).Info("eight")
			log.Error(errors.New("no luck"), "failed")
		})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("level %s (-want +got):\n%s", c.level, diff)
		}
	}
}

// TestLibrariesAreQuiet lets real libraries write.
func TestLibrariesAreQuiet(t *testing.T) {
	chatter := func(log logr.Logger) {
		ctx := klog.NewContext(context.Background(), log)
		warn := ctrllog.NewKubeAPIWarningLogger(ctrllog.KubeAPIWarningLoggerOptions{})
		warn.HandleWarningHeaderWithContext(ctx, 299, "", "a library's news")
		utilruntime.HandleErrorWithContext(ctx, errors.New("no luck"), "a library's failure")
		log.Info("our own")
	}
	if diff := cmp.Diff([]string{"error a library's failure", "info our own"}, logged(t, "info", chatter)); diff != "" {
		t.Errorf("at info (-want +got):\n%s", diff)
	}
	want := []string{"debug a library's news", "error a library's failure", "info our own"}
	if diff := cmp.Diff(want, logged(t, "debug", chatter)); diff != "" {
		t.Errorf("at debug (-want +got):\n%s", diff)
	}
}

// logged returns level and message of each line.
func logged(t *testing.T, level string, write func(logr.Logger)) []string {
	t.Helper()
	var out bytes.Buffer
	handler, err := NewLogHandler(&out, level, "json")
	if err != nil {
		t.Fatal(err)
	}
	write(logr.FromSlogHandler(handler))
	var lines []string
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q is not JSON: %v", line, err)
		}
		lines = append(lines, fields[slog.LevelKey].(string)+" "+strings.TrimSpace(fields[slog.MessageKey].(string)))
	}
	return lines
}
