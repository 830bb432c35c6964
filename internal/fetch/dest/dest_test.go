// SPDX-License-Identifier: Apache-2.0

package dest

import (
	"strings"
	"testing"
)

// TestReserveNeedsRoom: a size that the file system cannot hold is refused before anything is written.
func TestReserveNeedsRoom(t *testing.T) {
	d, err := Open(t.TempDir(), NewBudget(Limits{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.Create("model")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Reserve(1 << 60); err == nil || !strings.Contains(err.Error(), "the destination has") {
		t.Errorf("error %v for an exbibyte", err)
	}
	if err := f.Reserve(1 << 10); err != nil {
		t.Error(err)
	}
	if err := f.Abort(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
