// SPDX-License-Identifier: Apache-2.0

package unpack

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/fetch/dest"
)

// entry of an archive for a test.
type entry struct {
	name, content, link string
	kind                byte
	mode                int64
}

func tarOf(t testing.TB, compress bool, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		if e.mode == 0 {
			e.mode = 0o644
		}
		if err := w.WriteHeader(&tar.Header{Name: e.name, Typeflag: e.kind, Size: int64(len(e.content)), Linkname: e.link, Mode: e.mode}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !compress {
		return out.Bytes()
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func zipOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		mode := fs.FileMode(0o644)
		if e.kind == tar.TypeSymlink {
			mode |= fs.ModeSymlink
			e.content = e.link
		}
		if e.mode != 0 {
			mode = fs.FileMode(e.mode)
		}
		h.SetMode(mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// tree reads a directory back: content by path, links with an arrow, and an x for what can be executed.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path) // it is below
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			out[name] = "-> " + target
			return err
		case d.IsDir():
			out[name+"/"] = ""
			return nil
		}
		content, err := os.ReadFile(path)
		if info, _ := d.Info(); info != nil && info.Mode()&0o111 != 0 {
			name += " x"
		}
		out[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func extractTo(t testing.TB, dir string, archive []byte, name string, limits dest.Limits, ratio Ratio) error {
	t.Helper()
	d, err := dest.Open(dir, dest.NewBudget(limits), nil)
	if err != nil {
		t.Fatal(err)
	}
	failed := Extract(bytes.NewReader(archive), int64(len(archive)), name, d, ratio)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return failed
}

func TestExtract(t *testing.T) {
	model := []entry{
		{name: "./", kind: tar.TypeDir, mode: 0o755}, {name: "./a/", kind: tar.TypeDir, mode: 0o755}, {name: "./a/model.onnx", content: "weights"},
		{name: "run.sh", content: "#!", mode: 0o755}, {name: "latest", link: "a/model.onnx", kind: tar.TypeSymlink},
	}
	want := map[string]string{"a/": "", "a/model.onnx": "weights", "run.sh x": "#!", "latest": "-> a/model.onnx"}
	linked := map[string]string{"a/": "", "a/model.onnx": "weights", "run.sh x": "#!", "latest": "-> a/model.onnx", "hard": "weights"}
	for _, c := range []struct {
		name    string
		archive []byte
		want    map[string]string
	}{
		{"m.tar", tarOf(t, false, model...), want},
		{"m.tar.gz", tarOf(t, true, model...), want},
		{"m.tgz", tarOf(t, true, append(model, entry{name: "hard", link: "a/model.onnx", kind: tar.TypeLink})...), linked},
		{"plain.tar.gz", tarOf(t, false, model...), want},
		{"m.zip", zipOf(t, entry{name: "a/model.onnx", content: "weights"}, entry{name: "l", link: "a", kind: tar.TypeSymlink}),
			map[string]string{"a/": "", "a/model.onnx": "weights", "l": "-> a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := extractTo(t, dir, c.archive, c.name, dest.Limits{}, Ratio{}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, tree(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRefused: nothing leaves the destination, whatever an archive says.
func TestRefused(t *testing.T) {
	zeros := strings.Repeat("\x00", 1<<20)
	for _, c := range []struct {
		name    string
		archive []byte
		file    string
		limits  dest.Limits
		ratio   Ratio
		want    string
	}{
		{name: "above", archive: tarOf(t, true, entry{name: "../x", content: "y"}), want: "leads out"},
		{name: "deep above", archive: tarOf(t, true, entry{name: "a/../../x", content: "y"}), want: "leads out"},
		{name: "absolute", archive: tarOf(t, true, entry{name: "/x", content: "y"}), want: "leads out"},
		{name: "zip above", archive: zipOf(t, entry{name: "../x", content: "y"}), want: "leads out"},
		{name: "absolute link", archive: tarOf(t, true, entry{name: "l", link: "/etc", kind: tar.TypeSymlink}), want: "leads out"},
		{name: "link above", archive: tarOf(t, true, entry{name: "a/l", link: "../..", kind: tar.TypeSymlink}), want: "leads out"},
		{name: "zip link above", archive: zipOf(t, entry{name: "l", link: "../../etc", kind: tar.TypeSymlink}), want: "leads out"},
		{name: "through a chain of links", archive: tarOf(t, true,
			entry{name: "a/b/", kind: tar.TypeDir}, entry{name: "s", link: "a/b", kind: tar.TypeSymlink},
			entry{name: "s/t", link: "../..", kind: tar.TypeSymlink}, entry{name: "a/b/t/../../x", content: "y"}), want: "leads out"},
		{name: "hard link above", archive: tarOf(t, true, entry{name: "l", link: "../x", kind: tar.TypeLink}), want: "leads out"},
		{name: "device", archive: tarOf(t, true, entry{name: "null", kind: tar.TypeChar}), want: "neither file"},
		{name: "staging", archive: tarOf(t, true, entry{name: ".modelplane-part/1", content: "y"}), want: "reserved"},
		{name: "too large", archive: tarOf(t, true, entry{name: "x", content: zeros}), limits: dest.Limits{Bytes: 1 << 19}, want: "limit of 512 KiB"},
		{name: "too many", archive: tarOf(t, true, entry{name: "x"}, entry{name: "y"}), limits: dest.Limits{Files: 1}, want: "limit of 1 files"},
		{name: "bomb", archive: tarOf(t, true, entry{name: "x", content: zeros}), ratio: Ratio{Most: 100, Free: 1 << 10}, want: "100 times its size"},
		{name: "zip bomb", archive: zipOf(t, entry{name: "x", content: zeros}), ratio: Ratio{Most: 100, Free: 1 << 10}, want: "100 times its size"},
		{name: "cut off", archive: tarOf(t, true, entry{name: "x", content: "content"})[:60], want: "cut off"},
		{name: "cut off tar", archive: tarOf(t, false, entry{name: "x", content: zeros})[:5000], want: "cut off"},
		{name: "no archive", archive: []byte(strings.Repeat("no archive at all ", 100)), want: "damaged"},
		{name: "nothing", archive: nil, want: "empty"},
		{name: "xz", archive: []byte("\xfd7zXZ\x00"), file: "m.tar.xz", want: ".tar.xz"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "in")
			if c.file == "" {
				c.file = "m.tar.gz"
			}
			err := extractTo(t, dir, c.archive, c.file, c.limits, c.ratio)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			for name := range tree(t, filepath.Dir(dir)) {
				if name != "in/" && !strings.HasPrefix(name, "in/") {
					t.Errorf("%s was written outside", name)
				}
			}
		})
	}
}

// FuzzExtract: no archive writes outside of its destination, whatever is in it.
func FuzzExtract(f *testing.F) {
	f.Add(tarOf(f, false, entry{name: "a/x", content: "y"}, entry{name: "l", link: "a", kind: tar.TypeSymlink}, entry{name: "l/z", content: "y"}))
	f.Add(tarOf(f, true, entry{name: "a", content: "y"}, entry{name: "h", link: "a", kind: tar.TypeLink}))
	f.Add(zipOf(f, entry{name: "a/x", content: "y"}, entry{name: "l", link: "..", kind: tar.TypeSymlink}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "in")
		// most archives are refused, and that is fine
		_ = extractTo(t, dir, archive, "m.tar", dest.Limits{Bytes: 1 << 20, Files: 100}, Ratio{Most: 100, Free: 1 << 20})
		for name := range tree(t, outer) {
			if name != "in/" && !strings.HasPrefix(name, "in/") {
				t.Errorf("%s was written outside", name)
			}
		}
	})
}
