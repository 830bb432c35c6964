// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// Link makes dir hold one symlink per name, each pointing at the executable. Links that are already
// there are renewed; any other file of the same name is somebody's own and is refused.
func Link(executable, dir string, names []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if info, err := os.Lstat(path); err == nil {
			if info.Mode()&os.ModeSymlink == 0 {
				return fmt.Errorf("%s exists and is not a link; choose another directory", path)
			}
			if err := os.Remove(path); err != nil {
				return err
			}
		}
		if err := os.Symlink(executable, path); err != nil {
			return err
		}
	}
	return nil
}
