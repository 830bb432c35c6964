// SPDX-License-Identifier: Apache-2.0

package sse

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// split feeds a text in pieces of some length.
func split(text []byte, length, limit int) (out []string, err error) {
	s := Splitter{Limit: limit}
	each := func(e Event) error {
		out = append(out, e.Name+"|"+string(e.Data))
		return nil
	}
	for len(text) > 0 && err == nil {
		n := min(length, len(text))
		err = s.Feed(text[:n], each)
		text = text[n:]
	}
	if err != nil {
		return nil, err
	}
	return out, s.End(each)
}

func TestSplit(t *testing.T) {
	text := "event: a\r\ndata: one\r\n\r\n: a comment\n\ndata:two\ndata: three\n\nevent: nothing\n\nid: 4\ndata\n\ndata: last"
	want := "[a|one |two\nthree | |last]"
	for length := 1; length <= len(text); length++ {
		got, err := split([]byte(text), length, 100)
		if fmt.Sprint(got) != want || err != nil {
			t.Errorf("pieces of %d: %q, %v", length, got, err)
		}
	}
}

func TestLimit(t *testing.T) {
	for _, text := range []string{"data: " + strings.Repeat("x", 100), strings.Repeat("data: xxxxxxxxxx\n", 10)} {
		if _, err := split([]byte(text), 7, 64); !errors.Is(err, ErrTooLong) {
			t.Error(err)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte("event: a\r\ndata: one\r\n\r\ndata: b\n\n"), 3)
	f.Fuzz(func(t *testing.T, text []byte, length int) {
		if length < 1 {
			return
		}
		whole, _ := split(text, len(text)+1, 0)
		pieces, _ := split(text, length, 0)
		if fmt.Sprint(whole) != fmt.Sprint(pieces) {
			t.Fatalf("%q and %q", whole, pieces)
		}
		var again []byte
		for _, e := range whole {
			name, data, _ := strings.Cut(e, "|")
			if strings.Contains(name, "|") || strings.Contains(data, "\r") {
				return
			}
			again = Append(again, Event{Name: name, Data: []byte(data)})
		}
		if read, _ := split(again, len(again)+1, 0); len(read) != len(whole) {
			t.Fatalf("%q was written as %q and read as %q", whole, again, read)
		}
	})
}
