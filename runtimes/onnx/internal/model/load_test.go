// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/testkit/onnxmodel"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/model"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/ortlib/orttest"
)

// TestStated compares what files say of themselves with what ONNX Runtime says of them. Only a model of which a file does not
// say everything is loaded twice.
func TestStated(t *testing.T) {
	orttest.Need(t)
	files, err := filepath.Glob("../../testdata/*.onnx")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	examples, err := filepath.Glob("../../../../examples/onnx/*/model.onnx")
	if err != nil || len(examples) < 2 {
		t.Fatal(examples, err)
	}
	twice := 0
	for _, file := range append(files, examples...) {
		info, err := model.Inspect(file)
		if err != nil {
			t.Fatal(err)
		}
		if !model.Stated(info) {
			t.Logf("%s does not say everything", file)
			twice++
		}
		got, err := model.Specs(file, info, true)
		if err != nil {
			t.Fatal(err)
		}
		want, err := model.Specs(file, info, false)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Inputs, got.Inputs); diff != "" {
			t.Errorf("inputs of %s (-runtime +file):\n%s", file, diff)
		}
		if filepath.Base(file) == "total.onnx" { // ONNX Runtime sees that it has one row, which the file leaves open
			want.Outputs[0].Shape[0] = -1
		}
		if diff := cmp.Diff(want.Outputs, got.Outputs); diff != "" {
			t.Errorf("outputs of %s (-runtime +file):\n%s", file, diff)
		}
	}
	if twice > 1 {
		t.Errorf("%d of the models are loaded twice", twice)
	}
}

// TestLine shows that the models which tests write are real.
func TestLine(t *testing.T) {
	orttest.Need(t)
	for i, weights := range []int{0, 1 << 20} {
		line := onnxmodel.Line{Slope: float32(i) + 0.5, Intercept: 3, Weights: weights}
		file := filepath.Join(t.TempDir(), "line.onnx")
		if err := os.WriteFile(file, line.File(), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, many := range []bool{false, true} {
			m, err := model.Open(file, model.Options{Threads: 1, Many: many})
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("[%g,%g]", line.At(2), line.At(-4))
			if got := run(t, m, "[2,-4]"); got[0] != want {
				t.Errorf("answered %s, want %s", got[0], want)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
