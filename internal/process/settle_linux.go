// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// Settle gives back pages of the program that only its start has needed: initialising touches nearly all of it, and waiting
// hardly any. Those that are needed again come from the page cache. It is for programs that are paid for a thousand times.
func Settle() {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	for _, m := range unchanged(file, self) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.from, m.to-m.from, syscall.MADV_DONTNEED) // advice may be refused
	}
}

type mapping struct{ from, to uintptr }

// unchanged are the parts of the program, by what the kernel tells of all memory, that nobody can write and of which no page
// is another than in the file: nothing is lost when they go.
func unchanged(smaps io.Reader, program string) (out []mapping) {
	lines := bufio.NewScanner(smaps)
	var now mapping
	candidate := false
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) >= 5 && strings.Contains(words[0], "-"): // the head of a mapping
			_, err := fmt.Sscanf(words[0], "%x-%x", &now.from, &now.to)
			candidate = err == nil && len(words) == 6 && words[5] == program && (words[1] == "r-xp" || words[1] == "r--p")
		case candidate && words[0] == "Anonymous:":
			if words[1] == "0" {
				out = append(out, now)
			}
			candidate = false
		}
	}
	return out
}
