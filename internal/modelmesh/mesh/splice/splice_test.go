// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// request is a message as protocols have them: an id, another string, a number, a repeated message, and itself in itself.
func request(t testing.TB) protoreflect.MessageDescriptor {
	t.Helper()
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &kind,
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
		if kind == descriptorpb.FieldDescriptorProto_TYPE_MESSAGE {
			f.TypeName = proto.String(".t.Request")
		}
		return f
	}
	many := field("parts", 5, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE)
	many.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("t.proto"), Package: proto.String("t"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Request"), Field: []*descriptorpb.FieldDescriptorProto{
			field("id", 1, descriptorpb.FieldDescriptorProto_TYPE_STRING),
			field("data", 2, descriptorpb.FieldDescriptorProto_TYPE_BYTES),
			field("number", 3, descriptorpb.FieldDescriptorProto_TYPE_INT64),
			field("inner", 4, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE),
			many,
			field("far", 3000, descriptorpb.FieldDescriptorProto_TYPE_STRING),
		}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file.Messages().ByName("Request")
}

// put sets the field at the path the long way: by decoding all of it.
func put(message protoreflect.Message, path []int32, id string) {
	for ; len(path) > 1; path = path[1:] {
		message = message.Mutable(message.Descriptor().Fields().ByNumber(protowire.Number(path[0]))).Message()
	}
	message.Set(message.Descriptor().Fields().ByNumber(protowire.Number(path[0])), protoreflect.ValueOfString(id))
}

func take(message protoreflect.Message, path []int32) string {
	for ; len(path) > 1; path = path[1:] {
		message = message.Get(message.Descriptor().Fields().ByNumber(protowire.Number(path[0]))).Message()
	}
	return message.Get(message.Descriptor().Fields().ByNumber(protowire.Number(path[0]))).String()
}

var paths = [][]int32{{1}, {4, 1}, {4, 4, 1}, {3000}, {4, 3000}}

// FuzzAgainstDecoder holds both functions to what decoding the whole message gives.
func FuzzAgainstDecoder(f *testing.F) {
	descriptor := request(f)
	str := func(number protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), s)
	}
	f.Add([]byte{}, "new")
	f.Add(str(1, "old"), "new")
	f.Add(slices.Concat(str(2, "data"), str(1, "a"), str(1, "b"), str(3000, "far")), strings.Repeat("long", 50))
	f.Add(slices.Concat(str(4, string(str(1, "first"))), str(4, string(str(2, "no id"))), str(5, "")), "")
	f.Add(str(4, string(str(4, string(str(1, strings.Repeat("x", 130)))))), "short")
	f.Add(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7), "of another type")
	f.Add([]byte{0x0b, 0x0c}, "a group")
	f.Add([]byte{0x0a, 0xff}, "cut off")
	f.Fuzz(func(t *testing.T, encoded []byte, id string) {
		before := bytes.Clone(encoded)
		for _, path := range paths {
			whole := dynamicpb.NewMessage(descriptor)
			if proto.Unmarshal(encoded, whole) != nil {
				// What no decoder takes may be refused or answered, but ends and breaks nothing.
				_, _ = Extract(encoded, path)
				_, _ = Inject(encoded, path, id)
				continue
			}
			compare(t, encoded, path, id, whole)
		}
		if !bytes.Equal(before, encoded) {
			t.Error("the message that was given has been changed")
		}
	})
}

func compare(t *testing.T, encoded []byte, path []int32, id string, whole *dynamicpb.Message) {
	t.Helper()
	got, err := Extract(encoded, path)
	if err != nil || got != take(whole, path) {
		t.Errorf("Extract(%x, %v) = %q, %v; decoding says %q", encoded, path, got, err, take(whole, path))
	}
	injected, err := Inject(encoded, path, id)
	if err != nil {
		if protoString(id) {
			t.Errorf("Inject(%x, %v, %q): %v", encoded, path, id, err)
		}
		return
	}
	again := dynamicpb.NewMessage(whole.Descriptor())
	if err := proto.Unmarshal(injected, again); err != nil {
		t.Fatalf("Inject(%x, %v, %q) = %x: %v", encoded, path, id, injected, err)
	}
	put(whole, path, id)
	if diff := cmp.Diff(whole, again, protocmp.Transform()); diff != "" {
		t.Errorf("Inject(%x, %v, %q) and decoding differ:\n%s", encoded, path, id, diff)
	}
	if back, err := Extract(injected, path); err != nil || back != id {
		t.Errorf("after Inject(%x, %v, %q) the id is %q, %v", encoded, path, id, back, err)
	}
}

func protoString(s string) bool { return strings.ToValidUTF8(s, "") == s }

func TestRefuses(t *testing.T) {
	valid := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "id")
	for name, c := range map[string]struct {
		message []byte
		path    []int32
		want    string
	}{
		"no path":          {valid, nil, "is empty"},
		"field zero":       {valid, []int32{0}, "field number 0"},
		"negative":         {valid, []int32{1, -3}, "field number -3"},
		"endless":          {valid, slices.Repeat([]int32{4}, 17), "at most 16"},
		"cut off":          {valid[:3], []int32{1}, "no valid protobuf"},
		"length beyond":    {[]byte{0x0a, 0x7f, 'x'}, []int32{2}, "no valid protobuf"},
		"bad inside":       {[]byte{0x22, 0x02, 0x0a, 0x05}, []int32{4, 1}, "no valid protobuf"},
		"id of odd bytes":  {[]byte{0x0a, 0x02, 0xc3, 0x28}, []int32{1}, "UTF-8"},
		"unknown kind":     {[]byte{0x0f}, []int32{1}, "no valid protobuf"},
		"group not closed": {[]byte{0x13}, []int32{1}, "no valid protobuf"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Extract(c.message, c.path); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Extract: %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Inject(valid, []int32{1}, "\xff"); err == nil {
		t.Error("an id that is no UTF-8 was put in")
	}
	if _, err := Inject(valid[:3], []int32{1}, "x"); err == nil {
		t.Error("an id was put into a message that is cut off")
	}
}

// TestLargePayload: the cost must not depend on what else is in the message, and injecting copies once.
func TestLargePayload(t *testing.T) {
	message := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "id")
	message = protowire.AppendBytes(protowire.AppendTag(message, 2, protowire.BytesType), make([]byte, 1<<20))
	path := []int32{1}
	read := testing.AllocsPerRun(20, func() {
		if id, err := Extract(message, path); err != nil || id != "id" {
			t.Fatal(id, err)
		}
	})
	written := testing.AllocsPerRun(20, func() {
		if out, err := Inject(message, path, "another"); err != nil || len(out) != len(message)+5 || cap(out) > len(out)+len(out)/8 {
			t.Fatal(len(out), err)
		}
	})
	if read > 8 || written > 8 {
		t.Errorf("Extract allocates %v times, Inject %v times; want a handful", read, written)
	}
}
