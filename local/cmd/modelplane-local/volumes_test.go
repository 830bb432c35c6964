// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/modelplane/modelplane/local/internal/cluster"
)

const sharedClass = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: shared}
provisioner: modelplane.dev/local
parameters: {path: %s}
---
`

const claim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec: {%s, accessModes: [%s], resources: {requests: {storage: 1Gi}}}
---
`

// claimsGetVolumes has the addons work beside a control plane with nothing but their own rights: one claim gets a
// directory of its own, one reads a directory that is there, and two ask for what cannot be had.
func (l local) claimsGetVolumes() {
	volumes, shared := filepath.Join(l.TempDir(), "volumes"), l.TempDir()
	if err := os.WriteFile(filepath.Join(shared, "model"), nil, 0o600); err != nil {
		l.Fatal(err)
	}
	l.apply(cluster.AddonManifests() + "---\n" + fmt.Sprintf(sharedClass, shared) +
		fmt.Sprintf(claim, "own", "volumeMode: Filesystem", "ReadWriteOnce") +
		fmt.Sprintf(claim, "read", "storageClassName: shared", "ReadOnlyMany") +
		fmt.Sprintf(claim, "block", "volumeMode: Block", "ReadWriteOnce") +
		fmt.Sprintf(claim, "write", "storageClassName: shared", "ReadWriteOnce"))
	l.startAddons(volumes)
	own, read := l.bound("own"), l.bound("read")
	if info, err := os.Stat(own); err != nil || filepath.Dir(own) != volumes || info.Mode().Perm() != 0o777 {
		l.Errorf("the volume is %s below %s: %v %v", own, volumes, info, err)
	}
	if read != shared {
		l.Errorf("the shared directory is %s, want %s", read, shared)
	}
	for name, want := range map[string]string{"block": "ask for volumeMode Filesystem", "write": "ask for the access mode ReadOnlyMany"} {
		l.eventually("an event of claim "+name, func() error {
			out := l.kubectl("get", "events", "--field-selector", "reason=ProvisioningFailed,involvedObject.name="+name, "-o", "jsonpath={.items[*].message}")
			if !strings.Contains(out, want) {
				return errors.New(out)
			}
			return nil
		})
	}
	if err := os.WriteFile(filepath.Join(own, "data"), nil, 0o600); err != nil {
		l.Error(err)
	}
	l.kubectl("delete", "pvc", "own", "read", "block", "write")
	l.eventually("no volume", func() error {
		if out := l.kubectl("get", "pv", "-o", "name"); out != "" {
			return errors.New(out)
		}
		return nil
	})
	if _, err := os.Stat(own); !errors.Is(err, fs.ErrNotExist) {
		l.Errorf("the directory is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(shared, "model")); err != nil {
		l.Errorf("a directory that was there before is gone: %v", err)
	}
}

// startAddons runs the program until the test ends. Where nothing listens yet, nobody waits: what it does is awaited.
func (l local) startAddons(volumes string) {
	l.Helper()
	cmd := exec.Command(os.Args[0], "addons", "--kubeconfig", filepath.Join(l.dir, "kubeconfigs", "addons"), "--volumes", volumes)
	cmd.Env = append(os.Environ(), actAsProgram+"=1")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		err := cmd.Process.Signal(syscall.SIGTERM)
		if err := errors.Join(err, cmd.Wait()); err != nil {
			l.Errorf("the addons end with %v", err)
		}
		l.Logf("the addons said:\n%s", said.String())
	})
}

func (l local) apply(manifests string) {
	l.Helper()
	file := filepath.Join(l.TempDir(), "manifests.yaml")
	if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
		l.Fatal(err)
	}
	l.kubectl("apply", "-f", file)
}

// bound waits for a claim and returns the directory behind it.
func (l local) bound(claim string) (path string) {
	l.Helper()
	l.eventually("a volume for "+claim, func() error {
		words := strings.Fields(l.kubectl("get", "pvc", claim, "-o", "jsonpath={.status.phase} {.spec.volumeName}"))
		if len(words) != 2 || words[0] != "Bound" {
			return fmt.Errorf("%v", words)
		}
		path = l.kubectl("get", "pv", words[1], "-o", "jsonpath={.spec.hostPath.path}")
		return nil
	})
	return path
}

func (l local) eventually(what string, good func() error) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := good()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			l.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}
