// SPDX-License-Identifier: Apache-2.0

// Package onnxfile reads what an ONNX file says about itself: its inputs and outputs, and how much memory it takes once it
// is loaded. It passes over the weights without reading them, so that a file which is no model, or one that is too large,
// is refused before anything of it is in memory. It does not judge whether a model can be run.
package onnxfile

import (
	"errors"
	"fmt"
	"os"
)

// Kind is what sort of value goes in or out.
type Kind int

// The kinds.
const (
	Unknown Kind = iota // the file does not say it
	Tensor
	Sequence
	Map
	Other
)

// Value is an input or an output.
type Value struct {
	Name    string
	Kind    Kind
	Element int     // of a tensor: the number of its type in ONNX
	Shape   []int64 // of a tensor: -1 where any size will do
	Shaped  bool    // whether the file says the shape
}

// Info is what a file says.
type Info struct {
	Inputs  []Value // without those that have a fixed value
	Outputs []Value
	Size    int64 // of the file and of those in which it keeps weights
	Memory  int64 // what the loaded model takes, rather too much
	Loading int64 // what loading it takes besides: the file as it is
}

// What a loaded model takes besides its weights, as measured with ONNX Runtime.
const (
	perModel = 96 << 10
	perNode  = 4 << 10
)

// Limits of what is kept while reading.
const (
	mostValues  = 4096
	mostNames   = 1 << 20
	longestText = 64 << 10
)

// Invalid is the error of a file that is no ONNX model, or a part of one.
type Invalid struct{ cause string }

func (e *Invalid) Error() string { return e.cause }

func invalid(format string, args ...any) error { return &Invalid{fmt.Sprintf(format, args...)} }

// Read reads a file.
func Read(path string) (*Info, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	stat, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !stat.Mode().IsRegular() {
		return nil, errors.New("it is no file")
	}
	s := &scan{in: newReader(file, stat.Size()), path: path, fixed: map[string]bool{}}
	if err := s.model(stat.Size()); err != nil {
		return nil, err
	}
	return s.info(stat.Size())
}

// info puts together what was found.
func (s *scan) info(size int64) (*Info, error) {
	if !s.graphs {
		return nil, invalid("it has no graph")
	}
	i := &Info{Outputs: s.outputs, Size: size + s.outside, Loading: size}
	for _, v := range s.inputs {
		if !s.fixed[v.Name] {
			i.Inputs = append(i.Inputs, v)
		}
	}
	i.Memory = s.weights + (size - s.inside) + s.nodes*perNode + perModel
	return i, nil
}
