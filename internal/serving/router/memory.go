// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// What requests may take together where nobody says it, and what the program takes besides them, with room for the garbage
// collector.
const (
	usualPending = 256 << 20
	besides      = 64 << 20
)

// complete fills in what was not said: requests get half of the container's memory, and each a quarter of that.
func (l Limits) complete(container int64) Limits {
	l.Pending = cmp.Or(l.Pending, min(usualPending, container/2))
	l.Body = cmp.Or(l.Body, max(l.Pending/4, 1))
	return l
}

// heap is what the garbage collector should keep to.
func (l Limits) heap(container int64) int64 {
	return min(max(l.Pending, 2*l.Body)+besides, container/10*9)
}

// containerMemory is what the container may take, read below the root of the file system; as good as infinite where nobody
// says it.
func containerMemory(root string) int64 {
	for _, file := range []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && limit > 0 {
			return limit
		}
	}
	return math.MaxInt64
}
