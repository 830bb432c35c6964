// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUnchanged: only what is in the file as it is in memory, and cannot be written, may go.
func TestUnchanged(t *testing.T) {
	const smaps = `00400000-00b15000 r-xp 00000000 fe:00 1  /bin/modelplane-pod
Rss:                6612 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00b15000-0134a000 r--p 00715000 fe:00 1  /bin/modelplane-pod
Anonymous:             4 kB
0134a000-013c2000 rw-p 00f4a000 fe:00 1  /bin/modelplane-pod
Anonymous:             0 kB
013c2000-03409000 rw-p 00000000 00:00 0
Anonymous:             0 kB
03409000-03509000 r--p 00000000 fe:00 1  /bin/modelplane-pod
Anonymous:             0 kB
7f0000000000-7f0000001000 r--p 00000000 fe:00 2  /lib/another
Anonymous:             0 kB
`
	got := unchanged(strings.NewReader(smaps), "/bin/modelplane-pod")
	want := []mapping{{0x400000, 0xb15000}, {0x3409000, 0x3509000}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSettle: the program goes on, and there is something to give back.
func TestSettle(t *testing.T) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Skip("this system does not tell")
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip("this system does not tell")
	}
	defer func() { _ = file.Close() }()
	if len(unchanged(file, self)) == 0 {
		t.Error("no part of the program is found")
	}
	Settle()
}
