// SPDX-License-Identifier: Apache-2.0

package logger

import (
	"bytes"
	"encoding/binary"
)

// What Parquet calls things, in numbers: types of columns, kinds of fields in its headers, and encodings.
const (
	parquetMagic = "PAR1"

	parquetBoolean = 0
	parquetBytes   = 6

	compactI32    = 5
	compactI64    = 6
	compactBinary = 8
	compactList   = 9
	compactStruct = 12

	encodingPlain = 0
	encodingRLE   = 3
)

// asParquet writes a file with one group of rows. Every column has one page, as it is: texts, and one of booleans. Nothing
// is ever absent, so that there are no levels.
func asParquet(records []record) []byte {
	file := bytes.NewBufferString(parquetMagic)
	var group compact
	group.list(1, compactStruct, len(columns))
	for i, name := range columns {
		kind, page := int64(parquetBytes), texts(records, i)
		if name == "tlsSkipVerify" {
			kind, page = parquetBoolean, booleans(records)
		}
		offset := int64(file.Len())
		file.Write(pageHeader(len(records), len(page)))
		file.Write(page)
		size := int64(file.Len()) - offset
		group.Write(columnChunk(name, kind, int64(len(records)), offset, size))
	}
	group.field(2, compactI64)
	group.number(int64(file.Len() - len(parquetMagic)))
	group.field(3, compactI64)
	group.number(int64(len(records)))
	group.stop()
	footer := fileMetadata(int64(len(records)), group.Bytes())
	file.Write(footer)
	_ = binary.Write(file, binary.LittleEndian, uint32(len(footer))) // a buffer takes everything
	file.WriteString(parquetMagic)
	return file.Bytes()
}

// texts is a page of a column of texts.
func texts(records []record, column int) []byte {
	var out bytes.Buffer
	for i := range records {
		text := row(&records[i])[column]
		_ = binary.Write(&out, binary.LittleEndian, uint32(len(text)))
		out.WriteString(text)
	}
	return out.Bytes()
}

// booleans is a page of the one column that has them: a bit for each row.
func booleans(records []record) []byte {
	out := make([]byte, (len(records)+7)/8)
	for i := range records {
		if records[i].Anyone {
			out[i/8] |= 1 << (i % 8)
		}
	}
	return out
}

func pageHeader(rows, size int) []byte {
	var h compact
	for _, value := range []int64{0, int64(size), int64(size)} { // a page of data, and its size twice, since it is not compressed
		h.field(h.last+1, compactI32)
		h.number(value)
	}
	h.field(5, compactStruct)
	var data compact
	for _, value := range []int64{int64(rows), encodingPlain, encodingRLE, encodingRLE} {
		data.field(data.last+1, compactI32)
		data.number(value)
	}
	data.stop()
	h.Write(data.Bytes())
	h.stop()
	return h.Bytes()
}

func columnChunk(name string, kind, rows, offset, size int64) []byte {
	var meta compact
	meta.field(1, compactI32)
	meta.number(kind)
	meta.list(2, compactI32, 2)
	meta.number(encodingPlain)
	meta.number(encodingRLE)
	meta.list(3, compactBinary, 1)
	meta.text(name)
	meta.field(4, compactI32) // not compressed
	meta.number(0)
	for _, number := range []int64{rows, size, size} {
		meta.field(meta.last+1, compactI64)
		meta.number(number)
	}
	meta.field(9, compactI64)
	meta.number(offset)
	meta.stop()
	var chunk compact
	chunk.field(2, compactI64)
	chunk.number(offset)
	chunk.field(3, compactStruct)
	chunk.Write(meta.Bytes())
	chunk.stop()
	return chunk.Bytes()
}

// fileMetadata says which columns there are, and where.
func fileMetadata(rows int64, group []byte) []byte {
	var f compact
	f.field(1, compactI32)
	f.number(1)
	f.list(2, compactStruct, len(columns)+1)
	var root compact
	root.field(4, compactBinary)
	root.text("schema")
	root.field(5, compactI32)
	root.number(int64(len(columns)))
	root.stop()
	f.Write(root.Bytes())
	for _, name := range columns {
		f.Write(schemaElement(name))
	}
	f.field(3, compactI64)
	f.number(rows)
	f.list(4, compactStruct, 1)
	f.Write(group)
	f.field(6, compactBinary)
	f.text("modelplane")
	f.stop()
	return f.Bytes()
}

func schemaElement(name string) []byte {
	boolean := name == "tlsSkipVerify"
	var e compact
	e.field(1, compactI32)
	if boolean {
		e.number(parquetBoolean)
	} else {
		e.number(parquetBytes)
	}
	e.field(3, compactI32) // required
	e.number(0)
	e.field(4, compactBinary)
	e.text(name)
	if !boolean {
		e.field(6, compactI32) // UTF-8
		e.number(0)
	}
	e.stop()
	return e.Bytes()
}

// compact writes a structure as Parquet's headers are written: fields by the distance of their numbers.
type compact struct {
	bytes.Buffer
	last int
}

func (c *compact) field(id int, kind byte) {
	c.WriteByte(byte(id-c.last)<<4 | kind)
	c.last = id
}

func (c *compact) number(n int64) { c.Write(binary.AppendVarint(nil, n)) }

func (c *compact) text(s string) {
	c.Write(binary.AppendUvarint(nil, uint64(len(s))))
	c.WriteString(s)
}

func (c *compact) list(id int, of byte, size int) {
	c.field(id, compactList)
	if size < 15 {
		c.WriteByte(byte(size)<<4 | of)
		return
	}
	c.WriteByte(0xf0 | of)
	c.Write(binary.AppendUvarint(nil, uint64(size)))
}

func (c *compact) stop() { c.WriteByte(0) }
