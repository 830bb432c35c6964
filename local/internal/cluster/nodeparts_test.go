// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMountsBelow(t *testing.T) {
	const mountinfo = `22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:5 / /state/node/run/a rw - tmpfs tmpfs rw
31 30 0:6 / /state/node/run/a/with\040blank rw - tmpfs tmpfs rw
32 22 0:7 / /state-of-somebody-else rw - tmpfs tmpfs rw
`
	want := []string{"/state/node/run/a", "/state/node/run/a/with blank"}
	if diff := cmp.Diff(want, mountsBelow(mountinfo, "/state")); diff != "" {
		t.Error(diff)
	}
}

func TestImageNames(t *testing.T) {
	for short, long := range map[string]string{
		"modelplane:v1":             "docker.io/library/modelplane:v1",
		"team/server:v1":            "docker.io/team/server:v1",
		"registry.example:5000/x:1": "registry.example:5000/x:1",
		"localhost/x:1":             "localhost/x:1",
	} {
		if got := full(short); got != long {
			t.Errorf("%s in full is %s, want %s", short, got, long)
		}
		if got := familiar(long); got != short {
			t.Errorf("%s in short is %s, want %s", long, got, short)
		}
	}
}

func TestNamesInArchives(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string][]byte
		want  []string
		fails string
	}{
		{"docker", map[string][]byte{"manifest.json": []byte(`[{"RepoTags":["b:1","a:1"]}]`)},
			[]string{"docker.io/library/a:1", "docker.io/library/b:1"}, ""},
		{"oci", map[string][]byte{"index.json": []byte(`{"manifests":[{"annotations":{"io.containerd.image.name":"a:1"}}]}`)},
			[]string{"docker.io/library/a:1"}, ""},
		{"no name", map[string][]byte{"index.json": []byte(`{"manifests":[{}]}`)}, nil, "has a name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, err := packed(tc.files)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "image.tar")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := imageNames(path)
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("error %v, want %q", err, tc.fails)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

func TestPauseImageIsNamedByItsContent(t *testing.T) {
	dir := t.TempDir()
	executable := filepath.Join(dir, "modelplane-local")
	if _, err := pauseImage(executable); err == nil {
		t.Error("packed a program that does not exist")
	}
	var names []string
	for _, content := range []string{"one", "two", "one"} {
		if err := os.WriteFile(filepath.Join(dir, "pause"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		image, err := pauseImage(executable)
		if err != nil {
			t.Fatal(err)
		}
		if header, err := tar.NewReader(bytes.NewReader(image.archive)).Next(); err != nil || header.Name != "config.json" {
			t.Errorf("%v %v", header, err)
		}
		names = append(names, image.name)
	}
	if names[0] == names[1] || names[0] != names[2] {
		t.Errorf("names %v", names)
	}
}

func TestReadyCondition(t *testing.T) {
	for _, tc := range []struct {
		node  string
		ready bool
		why   string
	}{
		{`{"status":{"conditions":[{"type":"Ready","status":"True","message":"posting"}]}}`, true, "posting"},
		{`{"status":{"conditions":[{"type":"Ready","status":"False","message":"no network"}]}}`, false, "no network"},
		{`{"status":{}}`, false, "it has no condition yet"},
	} {
		if ready, why := readyCondition([]byte(tc.node)); ready != tc.ready || why != tc.why {
			t.Errorf("%s: %v %q", tc.node, ready, why)
		}
	}
}

func TestEachMissingPackageIsNamedOnce(t *testing.T) {
	if diff := cmp.Diff([]string{"containerd", "runc", "containernetworking-plugins", "nftables", "iproute2"},
		missingPackages(nil)); diff != "" {
		t.Error(diff)
	}
	all := map[string]string{}
	for _, r := range requirements {
		all[r.program] = "/there"
	}
	if missing := missingPackages(all); len(missing) > 0 {
		t.Errorf("missing %v although everything is there", missing)
	}
}

func TestDescendantsAreFoundAndEnded(t *testing.T) {
	parent := exec.Command("/bin/sh", "-c", "sleep 300 & sleep 300 & echo started; wait")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	go func() { gone <- parent.Wait() }()
	self := recordOf(t, parent.Process.Pid)
	below := descendants(self)
	if len(below) != 2 {
		t.Errorf("found %v, want two processes", below)
	}
	if err := end(t.Context(), append(below, self), 9, grace); err != nil {
		t.Error(err)
	}
	<-gone
	if slices.ContainsFunc(below, record.alive) {
		t.Error("a process outlived the signal")
	}
}
