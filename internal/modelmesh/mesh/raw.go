// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of whatever is no frame
	"google.golang.org/grpc/mem"
)

// frame is a message that nobody decodes. It holds a reference to gRPC's own buffers until it is freed.
type frame struct{ data mem.BufferSlice }

func (f *frame) free() {
	if f.data != nil {
		f.data.Free()
		f.data = nil
	}
}

// bytes is the message in one piece; free gives it back. Messages that came in one buffer are not copied.
func (f *frame) bytes() (message []byte, free func()) {
	buffer := f.data.MaterializeToBuffer(mem.DefaultBufferPool())
	return buffer.ReadOnlyData(), buffer.Free
}

func newFrame(message []byte) *frame { return &frame{mem.BufferSlice{mem.SliceBuffer(message)}} }

// rawCodec passes frames through and leaves everything else to the usual codec.
type rawCodec struct{ usual encoding.CodecV2 }

func newRawCodec() rawCodec { return rawCodec{encoding.GetCodecV2("proto")} }

// Name is that of the usual codec, so that others see nothing unusual on the wire.
func (rawCodec) Name() string { return "proto" }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		f.data.Ref()
		return f.data, nil
	}
	out, err := c.usual.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a message: %w", err)
	}
	return out, nil
}

func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		data.Ref()
		f.data = data
		return nil
	}
	if err := c.usual.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode a message: %w", err)
	}
	return nil
}
