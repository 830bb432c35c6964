// SPDX-License-Identifier: Apache-2.0

// Package model runs ONNX models on ONNX Runtime. It is the only room that calls into C; it knows nothing of requests,
// queues or protocols.
package model

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/onnxfile"
)

// Model is a loaded model. Run may be called by several goroutines at once.
type Model struct {
	Inputs  []tensor.Spec
	Outputs []tensor.Spec
	session *ort.DynamicAdvancedSession
	outputs []output
}

// output is how the values of an output are had from ONNX Runtime.
type output struct {
	element ort.TensorElementDataType
	listed  bool // a sequence of maps, as classifiers from scikit-learn give probabilities
	// scalar is set when a run has shown that the output has no dimensions, which cannot be told from an unknown shape
	// before.
	scalar *atomic.Bool
}

// Find returns the model's file: model.onnx in the directory, or else the only .onnx file below it. The path may also
// name the file itself.
func Find(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("looking for the model: %w", err)
	}
	if !info.IsDir() {
		return path, nil
	}
	if file := filepath.Join(path, "model.onnx"); isFile(file) {
		return file, nil
	}
	var found []string
	err = filepath.WalkDir(path, func(file string, entry os.DirEntry, err error) error {
		if err == nil && strings.EqualFold(filepath.Ext(file), ".onnx") && isFile(file) && !hidden(entry.Name()) {
			found = append(found, file)
		}
		return err
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("looking for the model: %w", err)
	case len(found) == 0:
		return "", fmt.Errorf("there is no .onnx file under %s; check what the storage URI points to", path)
	case len(found) > 1:
		return "", fmt.Errorf("there are %d .onnx files under %s, for example %s and %s; name the one to serve model.onnx", len(found), path, found[0], found[1])
	}
	return found[0], nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// Options say how a model is loaded.
type Options struct {
	// Threads is how many threads one run may use.
	Threads int
	// Many is for a model that is one of many. It gives memory back after each run, where another keeps as much as its
	// largest run took and has the next one begin faster; and it is loaded once, where another is first loaded to have its
	// shapes worked out, which can tell more of them than the file does.
	Many bool
}

// Open loads the model.
func Open(path string, o Options) (*Model, error) {
	info, err := Inspect(path)
	if err != nil {
		return nil, err
	}
	return Load(path, info, o)
}

// Inspect reads what the file says about itself, without loading it.
func Inspect(path string) (*onnxfile.Info, error) {
	info, err := onnxfile.Read(path)
	if errors.As(err, new(*onnxfile.Invalid)) {
		return nil, corrupt(path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the model %s: %w", path, err)
	}
	return info, nil
}

// Load loads a model that was inspected.
func Load(path string, info *onnxfile.Info, o Options) (*Model, error) {
	inputs, outputs, err := describe(path, info, o.Many)
	if err != nil {
		return nil, failed(path, err)
	}
	m := &Model{}
	for i := range inputs {
		if err := m.addInput(&inputs[i]); err != nil {
			return nil, fmt.Errorf("input %q of the model %s: %w", inputs[i].Name, path, err)
		}
	}
	for i := range outputs {
		if err := m.addOutput(&outputs[i]); err != nil {
			return nil, fmt.Errorf("output %q of the model %s: %w", outputs[i].Name, path, err)
		}
	}
	if len(m.Inputs) == 0 || len(m.Outputs) == 0 {
		return nil, fmt.Errorf("the model %s has %d inputs and %d outputs; it needs at least one of each", path, len(m.Inputs), len(m.Outputs))
	}
	if m.session, err = session(path, names(m.Inputs), names(m.Outputs), o); err != nil {
		return nil, failed(path, err)
	}
	return m, nil
}

func corrupt(path string, err error) error {
	return fmt.Errorf("%s is no valid ONNX file (%w); check where the model is stored, and export it again", path, err)
}

// failed tells a file that is no model, or a part of one, from a model that ONNX Runtime cannot serve. Its errors have
// codes, but the binding gives only their words.
func failed(path string, err error) error {
	for _, said := range []string{"Protobuf parsing failed", "INVALID_PROTOBUF", "does not have a graph", "ModelProto"} {
		if strings.Contains(err.Error(), said) {
			return corrupt(path, err)
		}
	}
	return fmt.Errorf("loading the model %s: %w", path, err)
}

// describe takes names and types from the file if that will do and says all of them, or else asks ONNX Runtime. For that it
// loads the model without optimising the graph, since the session is thrown away.
func describe(path string, info *onnxfile.Info, fromFile bool) ([]ort.InputOutputInfo, []ort.InputOutputInfo, error) {
	if inputs, outputs := stated(info.Inputs), stated(info.Outputs); fromFile && inputs != nil && outputs != nil {
		return inputs, outputs, nil
	}
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, nil, err
	}
	err = options.SetGraphOptimizationLevel(ort.GraphOptimizationLevelDisableAll)
	if err != nil {
		return nil, nil, errors.Join(err, options.Destroy())
	}
	inputs, outputs, err := ort.GetInputOutputInfoWithOptions(path, options)
	return inputs, outputs, errors.Join(err, options.Destroy())
}

var kinds = map[onnxfile.Kind]ort.ONNXType{
	onnxfile.Tensor: ort.ONNXTypeTensor, onnxfile.Sequence: ort.ONNXTypeSequence, onnxfile.Map: ort.ONNXTypeMap,
}

// stated is what the file says of its inputs or outputs; nil when that is not everything.
func stated(values []onnxfile.Value) []ort.InputOutputInfo {
	all := make([]ort.InputOutputInfo, len(values))
	for i, v := range values {
		kind, ok := kinds[v.Kind]
		if !ok || v.Kind == onnxfile.Tensor && (!v.Shaped || v.Element == 0) {
			return nil
		}
		all[i] = ort.InputOutputInfo{Name: v.Name, OrtValueType: kind, Dimensions: v.Shape, DataType: ort.TensorElementDataType(v.Element)}
	}
	return all
}

func session(path string, inputs, outputs []string, o Options) (*ort.DynamicAdvancedSession, error) {
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	// Threads that wait for work by spinning would take the processor from the requests that are being read.
	err = errors.Join(
		options.SetIntraOpNumThreads(o.Threads),
		options.SetInterOpNumThreads(1),
		options.AddSessionConfigEntry("session.intra_op.allow_spinning", "0"),
		options.SetCpuMemArena(!o.Many),
	)
	if err != nil {
		return nil, errors.Join(err, options.Destroy())
	}
	s, err := ort.NewDynamicAdvancedSession(path, inputs, outputs, options)
	return s, errors.Join(err, options.Destroy())
}

func names(specs []tensor.Spec) []string {
	all := make([]string, len(specs))
	for i, s := range specs {
		all[i] = s.Name
	}
	return all
}

func (m *Model) addInput(info *ort.InputOutputInfo) error {
	if info.OrtValueType != ort.ONNXTypeTensor {
		return fmt.Errorf("it is a %s; only tensors can be sent", info.OrtValueType)
	}
	spec, err := specOf(info)
	if err != nil {
		return err
	}
	m.Inputs = append(m.Inputs, spec)
	return nil
}

func (m *Model) addOutput(info *ort.InputOutputInfo) error {
	switch info.OrtValueType {
	case ort.ONNXTypeTensor:
		spec, err := specOf(info)
		if err != nil {
			return err
		}
		if err := allocatable(&spec); err != nil {
			return err
		}
		m.Outputs = append(m.Outputs, spec)
		m.outputs = append(m.outputs, output{element: info.DataType, scalar: &atomic.Bool{}})
	case ort.ONNXTypeSequence, ort.ONNXTypeMap:
		m.Outputs = append(m.Outputs, tensor.Spec{Name: info.Name, Type: tensor.FP32, Shape: []int64{-1, -1}})
		m.outputs = append(m.outputs, output{listed: true, scalar: &atomic.Bool{}})
	default:
		return fmt.Errorf("it is a %s; only tensors and lists of probabilities can be answered", info.OrtValueType)
	}
	return nil
}

func specOf(info *ort.InputOutputInfo) (tensor.Spec, error) {
	t, ok := types[info.DataType]
	if !ok {
		return tensor.Spec{}, fmt.Errorf("its element type %s has no counterpart in the open inference protocol", info.DataType)
	}
	shape := make([]int64, len(info.Dimensions))
	for i, d := range info.Dimensions {
		shape[i] = max(d, -1)
	}
	return tensor.Spec{Name: info.Name, Type: t, Shape: shape, AnyShape: len(shape) == 0}, nil
}

// allocatable refuses outputs of half precision whose size is not known before the run: the binding to ONNX Runtime
// cannot hand over such values.
func allocatable(spec *tensor.Spec) error {
	if spec.Type != tensor.FP16 && spec.Type != tensor.BF16 {
		return nil
	}
	for i, d := range spec.Shape {
		if d < 0 && i > 0 {
			return fmt.Errorf("its shape %v leaves more than the first dimension open, which is not possible for %s; let the model cast it to FP32", spec.Shape, spec.Type)
		}
	}
	if spec.AnyShape {
		return fmt.Errorf("the model does not say its shape, which is not possible for %s; let the model cast it to FP32", spec.Type)
	}
	return nil
}

// Close gives the model's memory back.
func (m *Model) Close() error { return m.session.Destroy() }
