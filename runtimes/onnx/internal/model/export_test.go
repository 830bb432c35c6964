// SPDX-License-Identifier: Apache-2.0

package model

import "github.com/modelplane/modelplane/runtimes/onnx/internal/onnxfile"

// Specs are inputs and outputs as the file or ONNX Runtime has them.
func Specs(path string, info *onnxfile.Info, fromFile bool) (*Model, error) {
	inputs, outputs, err := describe(path, info, fromFile)
	m := &Model{}
	for i := range inputs {
		if err == nil {
			err = m.addInput(&inputs[i])
		}
	}
	for i := range outputs {
		if err == nil {
			err = m.addOutput(&outputs[i])
		}
	}
	return m, err
}

// Stated says whether a file says everything about its inputs and outputs.
func Stated(info *onnxfile.Info) bool {
	return stated(info.Inputs) != nil && stated(info.Outputs) != nil
}
