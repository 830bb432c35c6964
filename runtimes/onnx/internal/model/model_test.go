// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/model"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/ortlib/orttest"
)

func open(t *testing.T, name string) *model.Model {
	t.Helper()
	orttest.Need(t)
	m, err := model.Open(filepath.Join("../../testdata", name+".onnx"), model.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func parse(t *testing.T, kind tensor.Type, text string) *tensor.Tensor {
	t.Helper()
	v, err := tensor.Parse(kind, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// run gives texts to the inputs in order and returns the outputs as texts.
func run(t *testing.T, m *model.Model, texts ...string) []string {
	t.Helper()
	inputs := make([]*tensor.Tensor, len(texts))
	for i, text := range texts {
		inputs[i] = parse(t, m.Inputs[i].Type, text)
	}
	outputs, err := m.Run(inputs)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range outputs {
		got = append(got, string(o.AppendNested(nil)))
	}
	return got
}

// TestTypes sends every type through a model that changes nothing, with several rows at once and at the same time.
func TestTypes(t *testing.T) {
	m := open(t, "types")
	values := map[tensor.Type]string{
		tensor.Bool: "[[true,false],[false,true]]", tensor.Uint8: "[[0,255],[1,2]]", tensor.Uint16: "[[65535,1],[2,3]]",
		tensor.Uint32: "[[4294967295,1],[2,3]]", tensor.Uint64: "[[18446744073709551615,1],[2,3]]", tensor.Int8: "[[-128,127],[0,1]]",
		tensor.Int16: "[[-32768,1],[2,3]]", tensor.Int32: "[[-2147483648,1],[2,3]]", tensor.Int64: "[[-9223372036854775808,1],[2,3]]",
		tensor.FP16: "[[0.5,-2],[65504,1]]", tensor.BF16: "[[1.5,-2],[0.25,1]]", tensor.FP32: "[[0.1,-2],[3,1e-09]]",
		tensor.FP64: "[[0.1,-2],[3,1e-200]]", tensor.Bytes: `[["a","grüße"],["","d"]]`,
	}
	var texts []string
	for _, in := range m.Inputs {
		if diff := cmp.Diff([]int64{-1, 2}, in.Shape); diff != "" {
			t.Errorf("%s: %s", in.Name, diff)
		}
		texts = append(texts, values[in.Type])
	}
	if len(texts) != len(values) {
		t.Fatalf("%d inputs, want %d", len(texts), len(values))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				if diff := cmp.Diff(texts, run(t, m, texts...)); diff != "" {
					t.Errorf("(-sent +answered):\n%s", diff)
				}
			}
		})
	}
	all.Wait()
}

func TestShapes(t *testing.T) {
	for _, test := range []struct {
		model string
		in    []string
		want  []string
	}{
		{"scalar", []string{"[1,2,3]", "10"}, []string{"12", "[11,12,13]"}},
		{"zipmap", []string{"[[0.1,0.2,0.7],[0.5,0.25,0.25]]"}, []string{"[[0.1,0.2,0.7],[0.5,0.25,0.25]]"}},
		{"total", []string{"[1,2,3]"}, []string{"[6]"}},
		{"total", []string{"[]"}, []string{"[0]"}},
		{"lookup", []string{"[3,0]"}, []string{"[30,0]"}},
	} {
		m := open(t, test.model)
		for range 2 { // what was learnt in the first run must hold in the second
			if diff := cmp.Diff(test.want, run(t, m, test.in...)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.model, diff)
			}
		}
	}
}

// TestUnaligned sends data that begins anywhere, as binary data in a body does.
func TestUnaligned(t *testing.T) {
	m := open(t, "lookup")
	for offset := range 8 {
		body := append(make([]byte, offset), 3, 0, 0, 0, 0, 0, 0, 0)
		outputs, err := m.Run([]*tensor.Tensor{{Name: "index", Type: tensor.Int64, Shape: []int64{1}, Data: body[offset:]}})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(outputs[0].AppendNested(nil)); got != "[30]" {
			t.Errorf("at %d: %s", offset, got)
		}
	}
}

func TestFailingRun(t *testing.T) {
	m := open(t, "lookup")
	if _, err := m.Run([]*tensor.Tensor{parse(t, tensor.Int64, "[99]")}); err == nil || !strings.Contains(err.Error(), "the model failed") {
		t.Errorf("an entry beyond the table: %v", err)
	}
	if got := run(t, m, "[1]"); got[0] != "[10]" {
		t.Errorf("after a failure: %s", got)
	}
}

func TestOpenRefuses(t *testing.T) {
	orttest.Need(t)
	file := filepath.Join(t.TempDir(), "model.onnx")
	whole, err := os.ReadFile(filepath.Join("..", "..", "testdata", "layers.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"text": []byte("no model"), "empty": nil, "a part": whole[:len(whole)/2]} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := model.Open(file, model.Options{Threads: 1}); err == nil || !strings.Contains(err.Error(), file+" is no valid ONNX file (") {
			t.Errorf("a file that is no model (%s): %v", name, err)
		}
	}
}

func TestFind(t *testing.T) {
	for _, test := range []struct {
		name  string
		files []string
		want  string // the message when it begins with a blank
	}{
		{"model.onnx", []string{"model.onnx", "other.onnx"}, "model.onnx"},
		{"the only one", []string{"iris.onnx", "labels.txt"}, "iris.onnx"},
		{"below", []string{"iris/1/iris.onnx"}, "iris/1/iris.onnx"},
		{"none", []string{"model.pt"}, " there is no .onnx file"},
		{"several", []string{"a.onnx", "b.onnx"}, " there are 2 .onnx files"},
	} {
		dir := t.TempDir()
		for _, f := range test.files {
			path := filepath.Join(dir, f)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := model.Find(dir)
		if message, ok := strings.CutPrefix(test.want, " "); ok {
			if err == nil || !strings.Contains(err.Error(), message) {
				t.Errorf("%s: %v, want %s", test.name, err, message)
			}
			continue
		}
		if err != nil || got != filepath.Join(dir, test.want) {
			t.Errorf("%s: %s (%v), want %s", test.name, got, err, test.want)
		}
	}
	if _, err := model.Find("/does/not/exist"); err == nil {
		t.Error("a directory that does not exist was found")
	}
}
