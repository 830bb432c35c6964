// SPDX-License-Identifier: Apache-2.0

package onnxfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/modelplane/modelplane/internal/testkit/onnxmodel"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/onnxfile"
)

func write(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRead(t *testing.T) {
	const weights = 1 << 20
	file := onnxmodel.Line{Weights: weights}.File()
	got, err := onnxfile.Read(write(t, file))
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) []onnxfile.Value {
		return []onnxfile.Value{{Name: name, Kind: onnxfile.Tensor, Element: 1, Shape: []int64{-1}, Shaped: true}}
	}
	want := &onnxfile.Info{
		Inputs: value(onnxmodel.Input), Outputs: value(onnxmodel.Output),
		Size: int64(len(file)), Loading: int64(len(file)), Memory: got.Memory,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Memory < weights || got.Memory > weights+256<<10 {
		t.Errorf("a model with %d bytes of weights is said to take %d", weights, got.Memory)
	}
}

// part is a field of a message.
func part(id protowire.Number, content ...[]byte) []byte {
	var all []byte
	for _, c := range content {
		all = append(all, c...)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, id, protowire.BytesType), all)
}

func number(id protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, id, protowire.VarintType), value)
}

func entry(key, value string) []byte {
	return part(13, part(1, []byte(key)), part(2, []byte(value)))
}

// model has one weight, made of the fields that are given.
func model(fields ...[]byte) []byte { return part(7, part(5, fields...)) }

// TestWeights looks at all the ways in which weights are stored.
func TestWeights(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "data"), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.onnx")
	memory := func(content []byte) (int64, error) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := onnxfile.Read(path)
		if err != nil {
			return 0, err
		}
		return info.Memory, nil
	}
	nothing, err := memory(model())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		file   []byte
		weight int64
	}{
		{"raw", model(number(1, 50), number(2, 1), part(9, make([]byte, 200))), 200},
		{"half precision", model(number(1, 100), number(2, 10), part(9, make([]byte, 200))), 400},
		{"numbers", model(number(1, 100), number(2, 7), part(7, make([]byte, 100))), 800},
		{"numbers that are not there", model(number(1, 1<<40), number(2, 7), part(7, make([]byte, 100))), 800},
		{"dimensions in a list", model(part(1, protowire.AppendVarint(nil, 10), protowire.AppendVarint(nil, 10)), number(2, 7), part(7, make([]byte, 100))), 800},
		{"texts", model(number(1, 2), number(2, 8), part(6, make([]byte, 10)), part(6, make([]byte, 10))), 16 + 64},
		{"another file", model(number(1, 250), entry("location", "data")), 1000},
		{"the end of another file", model(number(1, 250), entry("location", "data"), entry("offset", "900")), 100},
		{"a part of another file", model(number(1, 250), entry("location", "data"), entry("length", "300")), 300},
	} {
		got, err := memory(test.file)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if got -= nothing; got < test.weight || got > test.weight+100 {
			t.Errorf("%s: %d bytes, want %d", test.name, got, test.weight)
		}
	}
	for _, test := range []struct {
		name, want string
		file       []byte
	}{
		{"a file that is elsewhere", "outside of its directory", model(entry("location", "../data"))},
		{"a file that is missing", "store that file with it", model(entry("location", "missing"))},
		{"a length that is none", `has the length "x"`, model(entry("length", "x"))},
		{"a list that ends within a number", "ends before it is complete", model(part(1, []byte{0xff}), number(2, 1))},
	} {
		if _, err := memory(test.file); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}

// TestFixedInputs leaves out inputs that have a value in the file, as old exporters list them.
func TestFixedInputs(t *testing.T) {
	name := func(s string) []byte { return part(1, []byte(s)) }
	info, err := onnxfile.Read(write(t, part(7, part(11, name("w")), part(11, name("x")), part(5, part(8, []byte("w"))))))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]onnxfile.Value{{Name: "x"}}, info.Inputs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadRefuses(t *testing.T) {
	whole := onnxmodel.Line{Weights: 100}.File()
	for name, content := range map[string][]byte{
		"text": []byte("no model at all"), "empty": nil, "zeros": make([]byte, 1000), "a part": whole[:len(whole)/2],
		"a page": []byte("<!DOCTYPE html><html>"), "endless": []byte(strings.Repeat("\xff", 20)),
	} {
		if _, err := onnxfile.Read(write(t, content)); !errors.As(err, new(*onnxfile.Invalid)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := onnxfile.Read(t.TempDir()); err == nil || errors.As(err, new(*onnxfile.Invalid)) {
		t.Errorf("a directory: %v", err)
	}
}

// FuzzRead shows that no file makes the reader fail, or say that a model takes less than nothing.
func FuzzRead(f *testing.F) {
	f.Add(onnxmodel.Line{Weights: 100}.File())
	f.Add(model(number(1, 250), entry("location", "data")))
	f.Add([]byte("no model"))
	f.Fuzz(func(t *testing.T, content []byte) {
		info, err := onnxfile.Read(write(t, content))
		if err == nil && (info.Memory <= 0 || info.Size < int64(len(content))) {
			t.Errorf("%+v", info)
		}
	})
}
