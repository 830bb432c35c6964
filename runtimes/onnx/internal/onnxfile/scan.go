// SPDX-License-Identifier: Apache-2.0

package onnxfile

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
)

// Numbers of fields and values in ONNX.
const (
	modelGraph = 7

	graphNode, graphInitializer, graphInput, graphOutput = 1, 5, 11, 12

	tensorDims, tensorType, tensorName, tensorRaw, tensorExternal = 1, 2, 8, 9, 13

	entryKey, entryValue = 1, 2

	valueName, valueType = 1, 2

	kindTensor, kindSequence, kindMap, kindWord = 1, 4, 5, 6
	tensorElement, tensorShape                  = 1, 2
	shapeDimension                              = 1
	dimensionValue                              = 1

	elementString, elementHalf, elementBrain = 8, 10, 16
)

// scan is what was found so far.
type scan struct {
	in      *reader
	path    string
	graphs  bool
	inputs  []Value
	outputs []Value
	fixed   map[string]bool // names that have values in the file
	nodes   int64
	weights int64 // what weights take when they are loaded
	inside  int64 // how much of the file they are
	outside int64 // how much of other files they are
}

func (s *scan) model(size int64) error {
	return s.in.fields(size, func(f field) error {
		if f.id != modelGraph || f.way != bytes {
			return nil
		}
		s.graphs = true
		return s.in.fields(f.length, s.part)
	})
}

// part is a field of the graph.
func (s *scan) part(f field) error {
	if f.way != bytes {
		return nil
	}
	switch f.id {
	case graphNode:
		s.nodes++
	case graphInitializer:
		return s.initializer(f.length)
	case graphInput, graphOutput:
		if len(s.inputs)+len(s.outputs) >= mostValues+len(s.fixed) {
			return invalid("it has more than %d inputs and outputs", mostValues)
		}
		v, err := s.value(f.length)
		if err != nil {
			return err
		}
		if f.id == graphInput {
			s.inputs = append(s.inputs, v)
		} else {
			s.outputs = append(s.outputs, v)
		}
	}
	return nil
}

// weight is a value that comes with the model.
type weight struct {
	name     string
	element  uint64
	count    float64 // of elements; more than fit into an integer when a file lies
	stored   int64   // bytes of values in the file
	raw      bool
	location string // the file that has the values
	offset   int64
	length   int64
}

func (s *scan) initializer(length int64) error {
	w := weight{count: 1}
	err := s.in.fields(length, func(f field) (err error) {
		switch {
		case f.id == tensorDims && f.way == varint:
			w.count *= float64(f.number)
		case f.id == tensorDims:
			return s.dimensions(f.length, &w)
		case f.id == tensorType:
			w.element = f.number
		case f.id == tensorName:
			w.name, err = s.in.text(f)
		case f.id == tensorExternal:
			return s.external(f.length, &w)
		case f.way == bytes:
			w.stored += f.length
			w.raw = w.raw || f.id == tensorRaw
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(s.fixed) >= mostNames {
		return invalid("it has more than %d weights", mostNames)
	}
	s.fixed[w.name] = true
	s.inside += w.stored
	return s.count(&w)
}

// dimensions are in one list when somebody packed them.
func (s *scan) dimensions(length int64, w *weight) error {
	for end := s.in.at + length; s.in.at < end; {
		n, err := s.in.varint()
		if err != nil {
			return err
		}
		w.count *= float64(n)
	}
	return nil
}

func (s *scan) external(length int64, w *weight) error {
	var key, value string
	err := s.in.fields(length, func(f field) (err error) {
		switch f.id {
		case entryKey:
			key, err = s.in.text(f)
		case entryValue:
			value, err = s.in.text(f)
		}
		return err
	})
	if err != nil {
		return err
	}
	switch key {
	case "location":
		w.location = value
	case "offset":
		w.offset, err = strconv.ParseInt(value, 10, 64)
	case "length":
		w.length, err = strconv.ParseInt(value, 10, 64)
	}
	if err != nil || w.offset < 0 || w.length < 0 {
		return invalid("the weight %q has the %s %q", w.name, key, value)
	}
	return nil
}

// count adds what a weight takes. Numbers of half precision become whole ones where there is no arithmetic for them.
func (s *scan) count(w *weight) error {
	memory := w.stored
	switch {
	case w.location != "":
		n, err := s.beside(w)
		if err != nil {
			return err
		}
		s.outside += n
		memory += n
	case !w.raw: // numbers of any length
		memory = int64(min(w.count*8, float64(8*w.stored)))
	}
	switch w.element {
	case elementHalf, elementBrain:
		memory *= 2
	case elementString:
		memory += int64(min(w.count*32, float64(32*w.stored)))
	}
	if memory > math.MaxInt64/4-s.weights {
		return invalid("its weights are larger than any memory")
	}
	s.weights += memory
	return nil
}

// beside is how much of another file a weight is.
func (s *scan) beside(w *weight) (int64, error) {
	if !filepath.IsLocal(w.location) {
		return 0, invalid("it keeps weights in %q, which is outside of its directory", w.location)
	}
	stat, err := os.Stat(filepath.Join(filepath.Dir(s.path), w.location))
	if err != nil {
		return 0, fmt.Errorf("it keeps weights in a file %q beside it: %w; store that file with it", w.location, err)
	}
	if w.length > 0 {
		return min(w.length, stat.Size()), nil
	}
	return max(0, stat.Size()-w.offset), nil
}

func (s *scan) value(length int64) (v Value, err error) {
	err = s.in.fields(length, func(f field) (err error) {
		switch {
		case f.way != bytes:
		case f.id == valueName:
			v.Name, err = s.in.text(f)
		case f.id == valueType:
			err = s.in.fields(f.length, func(f field) error { return s.kind(f, &v) })
		}
		return err
	})
	return v, err
}

func (s *scan) kind(f field, v *Value) error {
	if f.way != bytes {
		return nil
	}
	switch f.id {
	case kindTensor:
		v.Kind = Tensor
		return s.in.fields(f.length, func(f field) error {
			switch {
			case f.id == tensorElement && f.way == varint:
				v.Element = int(f.number)
			case f.id == tensorShape && f.way == bytes:
				v.Shaped = true
				return s.in.fields(f.length, func(f field) error { return s.dimension(f, v) })
			}
			return nil
		})
	case kindSequence:
		v.Kind = Sequence
	case kindMap:
		v.Kind = Map
	case kindWord: // for people
	default:
		v.Kind = Other
	}
	return nil
}

func (s *scan) dimension(f field, v *Value) error {
	if f.id != shapeDimension || f.way != bytes {
		return nil
	}
	if len(v.Shape) >= mostValues {
		return invalid("a value in it has more than %d dimensions", mostValues)
	}
	size := int64(-1)
	err := s.in.fields(f.length, func(f field) error {
		if f.id == dimensionValue && f.way == varint {
			size = max(-1, int64(f.number))
		}
		return nil
	})
	v.Shape = append(v.Shape, size)
	return err
}
