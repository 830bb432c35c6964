// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const smallNamespace = "e2e-small"

// fullDiskIsTold gives a registry a volume without room: it says so when it cannot start, and with room it is well. When the
// room ends while it runs, who writes is told, and who reads is answered.
func (c cluster) fullDiskIsTold() {
	volume := c.smallVolume()
	full := fill(c, volume)
	c.mustKubectl("apply", "-f", c.manifest("registry-small.yaml", "${VOLUME}", volume))
	c.Cleanup(func() {
		c.undo("delete", "namespace", smallNamespace, "--timeout=5m")
		c.undo("delete", "persistentvolume", smallNamespace, "--timeout=5m")
	})
	c.registryTells(smallNamespace, "small", "no room left; give its volume more")
	full()
	c.smallIsAvailable()

	models := c.addressIn(smallNamespace, "small") + ":8080/api/model_registry/v1/registered_models"
	register := func(name, want string) {
		c.Helper()
		body := fmt.Sprintf(`{"name":%q,"readme":%q}`, name, strings.Repeat("x", 100_000))
		if _, err := answer(c.Context(), http.MethodPost, models, strings.NewReader(body)); err == nil || !strings.HasPrefix(err.Error(), want) {
			c.Fatalf("registering %s: %v; it should be %s", name, err, want)
		}
	}
	register("before", "201")
	full = fill(c, volume)
	register("meanwhile", "507 Insufficient Storage: "+`{"code":"Insufficient Storage","message":"the database has no room left; make room on its disk`)
	if out, err := c.get(models); err != nil || !strings.Contains(out, `"name":"before"`) || strings.Contains(out, "meanwhile") {
		c.Errorf("without room, reading says %s (%v)", out, err)
	}
	c.smallIsAvailable()
	full()
	register("meanwhile", "201")
}

func (c cluster) smallIsAvailable() {
	c.Helper()
	c.mustKubectl("wait", "--for=condition=Available", "--timeout=5m", "-n", smallNamespace, "modelregistry/small")
}

// smallVolume is a file system of its own that ends soon.
func (c cluster) smallVolume() string {
	c.Helper()
	path := filepath.Join(c.TempDir(), "volume")
	if err := os.Mkdir(path, 0o755); err != nil {
		c.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size=4m,mode=0777"); err != nil {
		c.Fatalf("mount %s: %v", path, err)
	}
	c.Cleanup(func() {
		if err := syscall.Unmount(path, 0); err != nil {
			c.Errorf("unmount %s: %v", path, err)
		}
	})
	return path
}

// fill takes all the room that a volume has left; the answer gives it back.
func fill(c cluster, volume string) (empty func()) {
	c.Helper()
	f, err := os.Create(filepath.Join(volume, "full"))
	if err != nil {
		c.Fatal(err)
	}
	block := make([]byte, os.Getpagesize())
	for err == nil {
		_, err = f.Write(block)
	}
	if closed := f.Close(); !errors.Is(err, syscall.ENOSPC) || closed != nil {
		c.Fatal(errors.Join(err, closed))
	}
	return func() {
		c.Helper()
		if err := os.Remove(f.Name()); err != nil {
			c.Fatal(err)
		}
	}
}
