// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Unprivileged is the user as whom to run a server that refuses to be root: the first of the names that there is. It owns
// the directory from then on. Whoever is not root stays who they are.
func Unprivileged(dir string, names ...string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // the caller's own rights
	}
	var who *user.User
	for _, name := range names {
		if found, err := user.Lookup(name); err == nil {
			who = found
			break
		}
	}
	if who == nil {
		return nil, fmt.Errorf("there is no user called any of %v", names)
	}
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	// The test's own directory is below one that only its owner may enter.
	above, err := os.Stat(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	const enter = os.FileMode(0o055)
	if above.Mode()&enter != enter {
		if err := os.Chmod(filepath.Dir(dir), above.Mode()|enter); err != nil {
			return nil, err
		}
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, int(uid), int(gid))
}
