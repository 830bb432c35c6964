// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/runtimes/onnx/internal/ortlib/orttest"
)

const examples = "../../../../examples/onnx"

// running is a server in this process.
type running struct {
	http, grpc, management string
	stop                   context.CancelFunc
	ended                  chan error
}

// start serves a model on free ports until the test ends.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	orttest.Need(t)
	o, err := Parse(append([]string{"--http_port=0", "--grpc_port=0", "--drain_delay=0s"}, args...), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{stop: stop, ended: make(chan error, 1)}
	started := make(chan Addresses, 1)
	go func() { r.ended <- RunLoaded(ctx, o, func(a Addresses) { started <- a }) }()
	t.Cleanup(stop)
	select {
	case a := <-started:
		r.http = "http://" + a.HTTP.String()
		if a.GRPC != nil {
			r.grpc = a.GRPC.String()
		}
		if a.Management != nil {
			r.management = a.Management.String()
		}
	case err := <-r.ended:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("the server did not start within a minute")
	}
	return r
}

func (r *running) post(t *testing.T, path, body string) (int, string) {
	t.Helper()
	response, err := http.Post(r.http+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func decode[T any](t *testing.T, text string) (value T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return value
}

// right are the classes that an example's request is about.
func right(t *testing.T, example string) []int {
	return decode[struct{ Classes []int }](t, read(t, examples, example, "classes.json")).Classes
}

// TestExamples proves that the example models give the right answers over REST.
func TestExamples(t *testing.T) {
	for _, example := range []struct{ name, output string }{{"iris", "class"}, {"digits", "digit"}} {
		t.Run(example.name, func(t *testing.T) {
			s := start(t, "--model_name="+example.name, "--model_dir="+filepath.Join(examples, example.name))
			want := right(t, example.name)

			code, text := s.post(t, "/v1/models/"+example.name+":predict", read(t, examples, example.name, "request-v1.json"))
			if code != http.StatusOK {
				t.Fatalf("v1 answers %d: %s", code, text)
			}
			if diff := cmp.Diff(want, predictions(t, text, example.output)); diff != "" {
				t.Errorf("v1 (-right +answered):\n%s", diff)
			}

			code, text = s.post(t, "/v2/models/"+example.name+"/infer", read(t, examples, example.name, "request-v2.json"))
			if code != http.StatusOK {
				t.Fatalf("v2 answers %d: %s", code, text)
			}
			answer := decode[struct {
				Outputs []struct {
					Name string
					Data []float64
				}
			}](t, text)
			var got []int
			for _, o := range answer.Outputs {
				if o.Name == example.output {
					for _, v := range o.Data {
						got = append(got, int(v))
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("v2 (-right +answered):\n%s", diff)
			}
		})
	}
}

// predictions are plain when the model has one output and objects otherwise.
func predictions(t *testing.T, text, output string) (got []int) {
	t.Helper()
	for _, raw := range decode[struct{ Predictions []json.RawMessage }](t, text).Predictions {
		if raw[0] != '{' {
			got = append(got, decode[int](t, string(raw)))
			continue
		}
		got = append(got, decode[int](t, string(decode[map[string]json.RawMessage](t, string(raw))[output])))
	}
	return got
}
