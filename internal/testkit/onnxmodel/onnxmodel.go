// SPDX-License-Identifier: Apache-2.0

// Package onnxmodel writes small ONNX models that are real: ONNX Runtime loads them, each answers with numbers of its own,
// and each is as large as a test wants. Tests of the ONNX server, which is a module of its own, prove that. The few fields
// that such a model has are written by hand, so that neither a schema nor a tool of another language is needed.
package onnxmodel

import (
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Line is the model y = Slope·x + Intercept for a list x of any length.
type Line struct {
	Slope, Intercept float32
	// Weights is how many bytes of weights the model has at least. They stay in memory as long as it is loaded.
	Weights int
}

// Names of the input and the output.
const (
	Input  = "x"
	Output = "y"
)

// At is what the model answers.
func (l Line) At(x float32) float32 { return l.Slope*x + l.Intercept }

// File is the model as it is stored.
//
// The intercept is taken out of the weights by an index that depends on x, so that no optimiser can do without them: it
// is 1 where x is no number and 0 elsewhere, and both weights are the intercept.
func (l Line) File() []byte {
	graph := slices.Concat(
		message(graphNode, node("Mul", []string{Input, "slope"}, "scaled")),
		message(graphNode, node("IsNaN", []string{Input}, "nan")),
		message(graphNode, node("Cast", []string{"nan"}, "index", attribute("to", typeInt64))),
		message(graphNode, node("Gather", []string{"weights", "index"}, "intercept")),
		message(graphNode, node("Add", []string{"scaled", "intercept"}, Output)),
		text(graphName, "line"),
		message(graphInitializer, weights("slope", []float32{l.Slope})),
		message(graphInitializer, weights("weights", l.values())),
		message(graphInput, list(Input)),
		message(graphOutput, list(Output)),
	)
	return slices.Concat(
		number(modelIRVersion, 8),
		text(modelProducer, "modelplane-tests"),
		message(modelGraph, graph),
		message(modelOpset, number(opsetVersion, 17)),
	)
}

// values begins with the intercept; the rest is there for its size, and not zero, so that it takes memory.
func (l Line) values() []float32 {
	values := make([]float32, max(2, (l.Weights+3)/4))
	for i := range values {
		values[i] = float32(i)
	}
	values[0], values[1] = l.Intercept, l.Intercept
	return values
}

// Numbers of fields and values in ONNX.
const (
	modelIRVersion, modelProducer, modelGraph, modelOpset = 1, 2, 7, 8
	opsetVersion                                          = 2

	graphNode, graphName, graphInitializer, graphInput, graphOutput = 1, 2, 5, 11, 12

	nodeInput, nodeOutput, nodeType, nodeAttribute = 1, 2, 4, 5
	attributeName, attributeInt, attributeType     = 1, 3, 20
	attributeIsInt                                 = 2

	tensorDims, tensorType, tensorName, tensorRaw = 1, 2, 8, 9
	typeFloat, typeInt64                          = 1, 7

	valueName, valueType       = 1, 2
	typeTensor                 = 1
	tensorElement, tensorShape = 1, 2
	shapeDimension             = 1
	dimensionOf                = 2
)

func node(kind string, inputs []string, output string, attributes ...[]byte) []byte {
	var out []byte
	for _, input := range inputs {
		out = append(out, text(nodeInput, input)...)
	}
	out = slices.Concat(out, text(nodeOutput, output), text(nodeType, kind))
	for _, a := range attributes {
		out = append(out, message(nodeAttribute, a)...)
	}
	return out
}

func attribute(name string, value uint64) []byte {
	return slices.Concat(text(attributeName, name), number(attributeInt, value), number(attributeType, attributeIsInt))
}

func weights(name string, values []float32) []byte {
	raw := make([]byte, 0, 4*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return slices.Concat(number(tensorDims, uint64(len(values))), number(tensorType, typeFloat), text(tensorName, name), message(tensorRaw, raw))
}

// list says that a value is a list of numbers of any length.
func list(name string) []byte {
	shape := message(shapeDimension, text(dimensionOf, "n"))
	tensor := slices.Concat(number(tensorElement, typeFloat), message(tensorShape, shape))
	return slices.Concat(text(valueName, name), message(valueType, message(typeTensor, tensor)))
}

func number(field protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), value)
}

func text(field protowire.Number, value string) []byte { return message(field, []byte(value)) }

func message(field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), value)
}
