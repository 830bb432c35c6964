// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryLimit is how much memory the container may take, as the kernel has it below root; 0 when there is no limit.
func memoryLimit(root string) int64 {
	for _, file := range []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue
		}
		// "max" is no number, and a limit that no machine has is none.
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && limit < 1<<50 {
			return limit
		}
	}
	return 0
}
