// SPDX-License-Identifier: Apache-2.0

package onnxmodel_test

import (
	"bytes"
	"testing"

	"github.com/modelplane/modelplane/internal/testkit/onnxmodel"
)

// TestSize shows that a model has the size that was asked for, and little more. That ONNX Runtime takes it, and what it
// answers, is tested with the ONNX server.
func TestSize(t *testing.T) {
	for _, want := range []int{0, 8, 1000, 1 << 20} {
		if got := len(onnxmodel.Line{Weights: want}.File()); got < want || got > want+400 {
			t.Errorf("a model with %d bytes of weights has %d", want, got)
		}
	}
}

func TestDifferent(t *testing.T) {
	one := onnxmodel.Line{Slope: 1, Intercept: 2}
	if !bytes.Equal(one.File(), one.File()) {
		t.Error("the same model is written in two ways")
	}
	if other := (onnxmodel.Line{Slope: 1, Intercept: 3}); bytes.Equal(one.File(), other.File()) {
		t.Error("two models are the same file")
	}
}
