// SPDX-License-Identifier: Apache-2.0

package qpext

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/testkit/freeport"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// asCommand makes the test binary behave as the command itself, and asProgram as a program that it starts.
const (
	asCommand = "TEST_AS_QPEXT"
	asProgram = "TEST_AS_PROGRAM"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asProgram) != "":
		os.Exit(program())
	case os.Getenv(asCommand) != "":
		_ = os.Setenv(asProgram, "yes") // for the program
		os.Exit(command.Execute(NewCommand(), os.Args[1:], os.Stderr))
	}
	os.Exit(m.Run())
}

// program plays the queue-proxy: it answers at its address until it is asked to stop, and ends with the code 7.
func program() int {
	ctx, stop := process.UntilSignal(context.Background())
	defer stop()
	err := process.Program{
		Log:     slog.New(slog.DiscardHandler),
		Servers: []process.Server{{Name: "program", Address: os.Args[1], Handler: http.NotFoundHandler()}},
		Timeout: 10 * time.Second,
	}.Run(ctx)
	if err != nil {
		return 9
	}
	return 7
}

const (
	ofQueue = `# HELP go_goroutines Number.
# TYPE go_goroutines gauge
go_goroutines 5
# TYPE kn_requests counter
kn_requests{kn_revision_name="r"} 3
# TYPE quarrel gauge
quarrel 1
`
	ofModel = `# HELP go_goroutines Number.
# TYPE go_goroutines gauge
go_goroutines 9
# TYPE latency histogram
latency_bucket{le="0.1"} 1
latency_bucket{le="+Inf"} 2
latency_sum 0.3
latency_count 2
# TYPE quarrel counter
quarrel 2
# TYPE requests_total counter
requests_total{service_name="mine"} 4
plain 6
made_created 1.5
`
	added   = `service_name="s",kn_service_name="s",configuration_name="c",kn_configuration_name="c",revision_name="r",kn_revision_name="r"`
	upTypes = "# HELP modelplane_qpext_target_up Whether the metrics of a part of this pod could be read.\n# TYPE modelplane_qpext_target_up gauge\n"
)

// aggregator asks two servers. An address of nothing means that there is none.
func aggregator(t *testing.T, queue, model http.HandlerFunc) *httptest.Server {
	t.Helper()
	s, err := readSettings(func(name string) string {
		return map[string]string{"KSERVE_CONTAINER_PROMETHEUS_METRICS_PORT": "1", "SERVING_SERVICE": "s", "SERVING_CONFIGURATION": "c", "SERVING_REVISION": "r"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, handler := range []http.HandlerFunc{queue, model} {
		server := httptest.NewServer(handler)
		if handler == nil {
			server.Close()
		} else {
			t.Cleanup(server.Close)
		}
		s.Targets[i].URL = server.URL
	}
	server := httptest.NewServer(NewAggregator(s, slog.New(slog.DiscardHandler)).Handler())
	t.Cleanup(server.Close)
	return server
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func get(t *testing.T, url string, header http.Header) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text), response.Header
}

func TestMetricsOfBoth(t *testing.T) {
	code, text, header := get(t, aggregator(t, says(ofQueue), says(ofModel)).URL+"/metrics", nil)
	want := `# HELP go_goroutines Number.
# TYPE go_goroutines gauge
go_goroutines 5
go_goroutines{` + added + `} 9
# TYPE kn_requests counter
kn_requests{kn_revision_name="r"} 3
# TYPE latency histogram
latency_bucket{` + added + `,le="0.1"} 1
latency_bucket{` + added + `,le="+Inf"} 2
latency_sum{` + added + `} 0.3
latency_count{` + added + `} 2
# TYPE made_created untyped
made_created{` + added + `} 1.5
` + upTypes + `modelplane_qpext_target_up{target="queue-proxy"} 1
modelplane_qpext_target_up{target="application"} 1
# TYPE plain untyped
plain{` + added + `} 6
# TYPE quarrel gauge
quarrel 1
# TYPE requests_total counter
requests_total{exported_service_name="mine",` + added + `} 4
`
	if diff := cmp.Diff(want, text); diff != "" || code != http.StatusOK || header.Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("%d %v (-want +got):\n%s", code, header, diff)
	}
	if code, text, _ := get(t, aggregator(t, nil, nil).URL+"/healthz", nil); code != http.StatusOK || text != "ok" {
		t.Errorf("/healthz: %d %s", code, text)
	}
}

// TestNamesOfLabels: a label that makes way for one of ours does not take the name of another.
func TestNamesOfLabels(t *testing.T) {
	_, text, _ := get(t, aggregator(t, nil, says(`a{service_name="1",exported_service_name="2"} 1`+"\n")).URL+"/metrics", nil)
	if want := `a{exported_exported_service_name="1",exported_service_name="2",` + added + `} 1`; !strings.Contains(text, want) {
		t.Errorf("%s is not in %s", want, text)
	}
}

// TestOneFails: what cannot be read is seen, and takes nothing else along.
func TestOneFails(t *testing.T) {
	for name, model := range map[string]http.HandlerFunc{
		"nobody there": nil,
		"an error":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"a redirect": func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "http://example.com", http.StatusFound)
		},
		"no metrics":  says("<html>"),
		"half a text": says("# TYPE a counter\na 1\nb{"),
		"too much":    says(strings.Repeat("a 1\n", mostBytes/4+1)),
		"never":       func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			code, text, _ := get(t, aggregator(t, says("up 1\n"), model).URL+"/metrics", http.Header{timeHeader: {"0.3"}})
			want := upTypes + "modelplane_qpext_target_up{target=\"queue-proxy\"} 1\nmodelplane_qpext_target_up{target=\"application\"} 0\n# TYPE up untyped\nup 1\n"
			if diff := cmp.Diff(want, text); code != http.StatusOK || diff != "" {
				t.Errorf("%d (-want +got):\n%s", code, diff)
			}
		})
	}
	code, text, _ := get(t, aggregator(t, nil, nil).URL+"/metrics", nil)
	if code != http.StatusServiceUnavailable || strings.Contains(text, "} 1") {
		t.Errorf("nothing can be read: %d %s", code, text)
	}
}

// TestAsksForText: whatever Prometheus would take, targets are asked for what is understood here.
func TestAsksForText(t *testing.T) {
	asked := make(chan http.Header, 1)
	server := aggregator(t, func(_ http.ResponseWriter, req *http.Request) { asked <- req.Header }, nil)
	get(t, server.URL+"/metrics", http.Header{"Accept": {"application/openmetrics-text"}, "User-Agent": {"Prometheus/3"}, timeHeader: {"5"}, "Authorization": {"secret"}})
	got := <-asked
	left, err := strconv.ParseFloat(got.Get(timeHeader), 64)
	if !strings.HasPrefix(got.Get("Accept"), "text/plain;version=0.0.4") || got.Get("User-Agent") != "Prometheus/3" || got.Get("Authorization") != "" || err != nil || left > 4.5 {
		t.Errorf("a target was asked with %v", got)
	}
}

func TestLimit(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": usualTime, "no": usualTime, "-1": usualTime, "NaN": usualTime, "Inf": longestTime - 500*time.Millisecond, "10": 9500 * time.Millisecond, "1": 900 * time.Millisecond,
	} {
		if got := limit(header); got != want {
			t.Errorf("%q is %s, want %s", header, got, want)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		port int
		url  string
		err  string
	}{
		{nil, 9088, "", ""},
		{map[string]string{"AGGREGATE_PROMETHEUS_METRICS_PORT": "1234", "KSERVE_CONTAINER_PROMETHEUS_METRICS_PORT": "8082", "KSERVE_CONTAINER_PROMETHEUS_METRICS_PATH": "/m"}, 1234, "http://localhost:8082/m", ""},
		{map[string]string{"KSERVE_CONTAINER_PROMETHEUS_METRICS_PORT": "8080"}, 9088, "http://localhost:8080/metrics", ""},
		{map[string]string{"KSERVE_CONTAINER_PROMETHEUS_METRICS_PORT": "http"}, 0, "", `KSERVE_CONTAINER_PROMETHEUS_METRICS_PORT is "http"`},
		{map[string]string{"AGGREGATE_PROMETHEUS_METRICS_PORT": "0"}, 0, "", `AGGREGATE_PROMETHEUS_METRICS_PORT is "0"`},
	} {
		got, err := readSettings(func(name string) string { return c.env[name] })
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v: %v", c.env, err)
			}
		case err != nil || got.Port != c.port || (len(got.Targets) == 2) != (c.url != "") || c.url != "" && got.Targets[1].URL != c.url:
			t.Errorf("%v: %+v, %v", c.env, got, err)
		}
	}
}

func freeAddress(t *testing.T) (address, number string) {
	t.Helper()
	number = strconv.Itoa(freeport.At(t, "127.0.0.1"))
	return "127.0.0.1:" + number, number
}

// answers waits until somebody answers at an address.
func answers(t *testing.T, url string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		response, err := http.Get(url)
		if err == nil {
			_ = response.Body.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestProgram: the program is started, hears of the signal, and its exit code is ours, whether metrics can be shown or not.
func TestProgram(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprint("busy ", busy), func(t *testing.T) {
			address, _ := freeAddress(t)
			_, port := freeAddress(t)
			if busy {
				listener, err := net.Listen("tcp", ":"+port)
				if err != nil {
					t.Fatal(err)
				}
				defer listener.Close()
			}
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), os.Args[0], "--log-level=warn", "--", os.Args[0], address, "--unknown-flag")
			cmd.Env = append(os.Environ(), asCommand+"=yes", "AGGREGATE_PROMETHEUS_METRICS_PORT="+port)
			cmd.Stderr = &stderr
			if err := guard.Start(cmd); err != nil {
				t.Fatal(err)
			}
			answers(t, "http://"+address)
			if !busy {
				answers(t, "http://127.0.0.1:"+port+"/healthz")
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_ = guard.Wait(cmd)
			if code := cmd.ProcessState.ExitCode(); code != 7 || strings.Contains(stderr.String(), "Metrics are not shown") != busy {
				t.Errorf("exit code %d, log:\n%s", code, &stderr)
			}
		})
	}
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte(ofQueue), []byte(ofModel))
	f.Add([]byte("a 1\n"), []byte("a{a=\"b\"} NaN 12\n"))
	f.Add([]byte("a 1\n"), []byte("b{service_name=\"1\",exported_service_name=\"2\"} 1\n"))
	f.Add([]byte("# TYPE s summary\ns{quantile=\"0.5\"} 1\n"), []byte("# TYPE s summary\ns_sum 1\n"))
	f.Add([]byte("#TYPE s summArY\ns{}0\n"), []byte("s_sum 0\n"))
	f.Add([]byte("s_sum 0\n# TYPE s summary\ns 0\n"), []byte("a 1\n"))
	f.Fuzz(func(t *testing.T, one, other []byte) {
		all, err := parse(bytes.NewReader(one))
		if err != nil {
			return
		}
		more, err := parse(bytes.NewReader(other))
		if err != nil {
			return
		}
		more.label([]Label{{"service_name", "s"}})
		_ = all.add(more)
		var text bytes.Buffer
		if err := all.write(&text); err != nil {
			t.Fatalf("%v: %q %q", err, one, other)
		}
		if _, err := parse(&text); err != nil {
			t.Errorf("%v: %q", err, &text)
		}
	})
}
