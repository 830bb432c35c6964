// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelplane/modelplane/internal/process"
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

// TestAnOrderlyEndIsQuiet: what was cut short because this process or a client went away is a detail; what one side
// refused, or what never got an answer, is not.
func TestAnOrderlyEndIsQuiet(t *testing.T) {
	standard := func(reason string) func(logr.Logger) {
		return func(log logr.Logger) {
			r := slog.NewRecord(time.Now(), slog.LevelWarn, "http: TLS handshake error from 127.0.0.1:40000: "+reason, 0)
			if err := logr.ToSlogHandler(log).Handle(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
	}
	library := func(err error) func(logr.Logger) {
		return func(log logr.Logger) {
			reflector := cache.NewNamedReflector("test", &cache.ListWatch{}, &corev1.Secret{}, cache.NewStore(nil), 0)
			cache.DefaultWatchErrorHandler(klog.NewContext(t.Context(), log), reflector, err)
		}
	}
	for _, c := range []struct {
		name  string
		write func(logr.Logger)
		want  string
	}{
		{"our own stop", standard("context canceled"), "debug"},
		{"a client that left", standard("EOF"), "debug"},
		{"a client that left in the middle", standard("unexpected EOF"), "debug"},
		{"a client that was cut off", standard("read tcp 127.0.0.1:9443->127.0.0.1:40000: read: connection reset by peer"), "debug"},
		{"a client that does not read", standard("write tcp 127.0.0.1:9443->127.0.0.1:40000: write: broken pipe"), "debug"},
		{"our own end", standard("read tcp 127.0.0.1:9443->127.0.0.1:40000: use of closed network connection"), "debug"},
		{"a client that distrusts us", standard("remote error: tls: bad certificate"), "warn"},
		{"a client that knows another root", standard("remote error: tls: unknown certificate authority"), "warn"},
		{"a client of another age", standard("tls: client offered only unsupported versions: [301]"), "warn"},
		{"a client without TLS", standard("client sent an HTTP request to an HTTPS server"), "warn"},
		{"a client that says nothing", standard("read tcp 127.0.0.1:9443->127.0.0.1:40000: i/o timeout"), "warn"},
		{"a request cut short", library(fmt.Errorf("list: %w", context.Canceled)), "debug"},
		{"a request without an answer", library(fmt.Errorf("list: %w", context.DeadlineExceeded)), "error"},
		{"our own error", func(log logr.Logger) { log.Error(context.Canceled, "Failed to watch") }, "error"},
		{"our own words", func(log logr.Logger) { log.Info("http: TLS handshake error from us: EOF") }, "info"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := logged(t, "debug", c.write); len(got) != 1 || !strings.HasPrefix(got[0], c.want+" ") {
				t.Errorf("wrote %q, want one line at %s", got, c.want)
			}
			if got := logged(t, "info", c.write); (len(got) == 0) != (c.want == "debug") {
				t.Errorf("wrote %q at level info", got)
			}
		})
	}
}

// logged returns level and message of each line.
func logged(t *testing.T, level string, write func(logr.Logger)) []string {
	t.Helper()
	var out bytes.Buffer
	handler, err := process.NewLogHandler(&out, process.LogOptions{Level: level, Format: "json", Detail: Detail})
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

func TestFarewell(t *testing.T) {
	timeout := apierrors.NewTimeoutError("failed waiting for *v1.Secret Informer to sync", 0)
	for _, c := range []struct {
		message string
		err     error
		want    bool
	}{
		{noInformer, timeout, true},
		{noInformer, errors.New("no kind is registered"), false},
		{"Failed to list", timeout, false},
		{afterStop, errors.New("leader election lost"), true},
		{"Failed to renew", errors.New("leader election lost"), false},
		{"Failed to list", fmt.Errorf("list: %w", context.Canceled), true},
	} {
		r := slog.NewRecord(time.Now(), slog.LevelError, c.message, 0)
		r.AddAttrs(slog.Any("err", c.err))
		if got := farewell(r); got != c.want {
			t.Errorf("%s: %v: got %v", c.message, c.err, got)
		}
	}
}
