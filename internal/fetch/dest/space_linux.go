// SPDX-License-Identifier: Apache-2.0

package dest

import (
	"fmt"
	"syscall"
)

// Room tells whether the file system has place for so many bytes more, so that a download does not fill it in vain.
func (d *Dir) Room(bytes int64) error {
	f, err := d.root.Open(".")
	if err != nil {
		return fmt.Errorf("the destination cannot be read: %w", reason(err))
	}
	defer f.Close() //nolint:errcheck // nothing was written
	var stat syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &stat); err != nil || stat.Blocks == 0 {
		return nil // a file system that does not tell may still have room
	}
	if free := int64(stat.Bavail) * int64(stat.Bsize); bytes > free { //nolint:unconvert // the types differ between architectures
		return &NoRoom{Needs: bytes, Free: free}
	}
	return nil
}
