// SPDX-License-Identifier: Apache-2.0

package openinference

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestBudget(t *testing.T) {
	for _, test := range []struct {
		name      string
		body      io.Reader
		announced int64
		held      int64 // by others
		kind      Kind
		fine      bool
	}{
		{name: "announced", body: strings.NewReader("abc"), announced: 3, fine: true},
		{name: "in small pieces", body: iotest.OneByteReader(strings.NewReader("abc")), announced: 3, fine: true},
		{name: "empty", body: strings.NewReader(""), announced: 0, fine: true},
		{name: "unknown length", body: strings.NewReader(strings.Repeat("a", 3*step)), announced: -1, fine: true},
		{name: "announced too large", body: strings.NewReader(""), announced: 4*step + 1, kind: TooLarge},
		{name: "unknown length and too large", body: strings.NewReader(strings.Repeat("a", 5*step)), announced: -1, kind: TooLarge},
		{name: "no room", body: strings.NewReader("abc"), announced: 3, held: 8*step - 2, kind: Busy},
		{name: "no room while it grows", body: strings.NewReader(strings.Repeat("a", 3*step)), announced: -1, held: 6 * step, kind: Busy},
		{name: "cut off", body: strings.NewReader("ab"), announced: 3, kind: Invalid},
		{name: "broken", body: iotest.ErrReader(errors.New("gone")), announced: 3, kind: Invalid},
	} {
		b := NewBudget(8*step, 4*step)
		others, share := b.Share(), b.Share()
		if err := others.Grow(test.held); err != nil {
			t.Fatal(err)
		}
		data, err := share.Read(test.body, test.announced)
		switch {
		case test.fine && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.fine:
			if test.announced >= 0 && int64(len(data)) != test.announced || test.announced < 0 && len(data) != 3*step {
				t.Errorf("%s: %d bytes", test.name, len(data))
			}
			if used := b.used.Load(); used != int64(cap(data)) {
				t.Errorf("%s: %d bytes are held for %d", test.name, used, cap(data))
			}
		case err == nil || KindOf(err) != test.kind:
			t.Errorf("%s: %v of kind %d, want %d", test.name, err, KindOf(err), test.kind)
		}
		share.Release()
		others.Release()
		if used := b.used.Load(); used != 0 {
			t.Errorf("%s: %d bytes stay held", test.name, used)
		}
	}
}

// TestShare: what can never fit is told from what may fit later.
func TestShare(t *testing.T) {
	b := NewBudget(100, 50)
	one, other := b.Share(), b.Share()
	for _, test := range []struct {
		share *Share
		bytes int64
		kind  Kind
	}{{one, 60, -1}, {one, 41, TooLarge}, {other, 41, Busy}, {other, 40, -1}, {other, -1, TooLarge}, {other, 1 << 62, TooLarge}} {
		if err := test.share.Grow(test.bytes); test.kind < 0 && err != nil || test.kind >= 0 && KindOf(err) != test.kind {
			t.Errorf("%d bytes: %v", test.bytes, err)
		}
	}
	one.Release()
	other.Release()
	if used := b.used.Load(); used != 0 {
		t.Errorf("%d bytes stay held", used)
	}
}
