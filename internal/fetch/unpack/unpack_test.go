// SPDX-License-Identifier: Apache-2.0

package unpack

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path"
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
			entry{name: "s/t", link: "../../..", kind: tar.TypeSymlink}, entry{name: "a/b/t/../../x", content: "y"}), want: "leads out"},
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

// hostile are archives that try to plant a link that leads out, each in another way. Some are refused, others are unpacked
// into something harmless.
var hostile = map[string][]entry{
	"above from a link": {
		{name: "x", link: ".", kind: tar.TypeSymlink}, {name: "x/x/x/l", link: "../../..", kind: tar.TypeSymlink}, {name: "l/evil", content: "y"}},
	"above from a link to a deeper place": {
		{name: "a/b/", kind: tar.TypeDir}, {name: "s", link: "a/b", kind: tar.TypeSymlink},
		{name: "s/t", link: "..", kind: tar.TypeSymlink}, {name: "a/b/t/../../../evil", content: "y"}},
	"hard link to a link": {
		{name: "a/b/l", link: "../..", kind: tar.TypeSymlink}, {name: "h", link: "a/b/l", kind: tar.TypeLink}, {name: "h/evil", content: "y"}},
	"hard link to a link through a link": {
		{name: "a/b/l", link: "../..", kind: tar.TypeSymlink}, {name: "s", link: "a/b", kind: tar.TypeSymlink}, {name: "h", link: "s/l", kind: tar.TypeLink}},
	"back up through what becomes a link": {
		{name: "l", link: "a/b/../..", kind: tar.TypeSymlink}, {name: "a/b", link: "..", kind: tar.TypeSymlink}, {name: "l/evil", content: "y"}},
	"back up through what is a link": {
		{name: "a", link: ".", kind: tar.TypeSymlink}, {name: "l", link: "a/a/../..", kind: tar.TypeSymlink}, {name: "l/evil", content: "y"}},
	"a link in the place of a file": {
		{name: "a/b", content: "y"}, {name: "l", link: "a/b/..", kind: tar.TypeSymlink}, {name: "a/b", link: "..", kind: tar.TypeSymlink}},
	"a file through a link out": {{name: "l", link: "../outside", kind: tar.TypeSymlink}, {name: "l", content: "y"}},
	"a directory through a link": {
		{name: "l", link: "nowhere", kind: tar.TypeSymlink}, {name: "l/d/", kind: tar.TypeDir}, {name: "l/d/k", link: "../..", kind: tar.TypeSymlink}},
	"a link without a target": {{name: "l", kind: tar.TypeSymlink}},
	"into the staging directory": {
		{name: "x", link: ".", kind: tar.TypeSymlink}, {name: "x/.modelplane-part/l", link: "../..", kind: tar.TypeSymlink}},
	"a circle": {{name: "a", link: "b", kind: tar.TypeSymlink}, {name: "b", link: "a", kind: tar.TypeSymlink}, {name: "a/x", content: "y"}},
}

// TestLinksLeadNowhereElse: after two archives in a row no link leads out, and nothing outside has changed.
func TestLinksLeadNowhereElse(t *testing.T) {
	for name, entries := range hostile {
		t.Run(name, func(t *testing.T) {
			for _, archives := range [][][]byte{
				{tarOf(t, true, entries...)},
				{tarOf(t, false, entries[0]), tarOf(t, false, entries...)},
				{tarOf(t, false, entries...), tarOf(t, false, entries[len(entries)-1])},
				{zipOf(t, entries...)},
			} {
				unpackAll(t, archives...)
			}
		})
	}
}

// TestHonestLinksStay: what archives of models really have in them is unpacked.
func TestHonestLinksStay(t *testing.T) {
	dir := t.TempDir()
	archive := tarOf(t, true,
		entry{name: "blobs/1", content: "weights"}, entry{name: "snapshots/main/model.onnx", link: "../../blobs/1", kind: tar.TypeSymlink},
		entry{name: "latest", link: "snapshots/./main/../main", kind: tar.TypeSymlink}, entry{name: "latest/extra", content: "y"},
		entry{name: "latest/back", link: "../../blobs", kind: tar.TypeSymlink}, entry{name: "copy", link: "blobs/1", kind: tar.TypeLink},
		entry{name: "dangling", link: "later/on", kind: tar.TypeSymlink})
	if err := extractTo(t, dir, archive, "m.tar", dest.Limits{}, Ratio{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"blobs/": "", "blobs/1": "weights", "snapshots/": "", "snapshots/main/": "", "snapshots/main/model.onnx": "-> ../../blobs/1",
		"latest": "-> snapshots/main", "snapshots/main/extra": "y", "snapshots/main/back": "-> ../../blobs", "copy": "weights", "dangling": "-> later/on",
	}
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// unpackAll unpacks archives one after the other into the same directory and looks at what became of it.
func unpackAll(t testing.TB, archives ...[]byte) {
	t.Helper()
	outer := t.TempDir()
	if err := os.WriteFile(filepath.Join(outer, "outside"), []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(outer, "in")
	for _, archive := range archives {
		// most are refused, and that is fine
		_ = extractTo(t, dir, archive, "m.tar", dest.Limits{Bytes: 1 << 20, Files: 100}, Ratio{Most: 100, Free: 1 << 20})
	}
	outside := map[string]string{}
	for name, content := range tree(t, outer) {
		target, isLink := strings.CutPrefix(content, "-> ")
		below, inside := strings.CutPrefix(name, "in/")
		switch {
		case isLink && !staysIn(dir, path.Dir(below), target):
			t.Errorf("the link %s leads out, to %s", below, target)
		case !inside:
			outside[name] = content
		}
	}
	if diff := cmp.Diff(map[string]string{"outside": "untouched"}, outside); diff != "" {
		t.Error("outside of the destination:", diff)
	}
}

// staysIn follows a link as the kernel does, also one to what does not exist, and tells whether it ever is above the root.
func staysIn(root, at, target string) bool {
	todo := strings.Split(target, "/")
	if path.IsAbs(target) {
		return false
	}
	for steps := 0; len(todo) > 0 && steps < 1000; steps++ {
		next := path.Join(at, todo[0])
		todo = todo[1:]
		if next == ".." || strings.HasPrefix(next, "../") {
			return false
		}
		text, err := os.Readlink(filepath.Join(root, next))
		if err != nil {
			at = next
			continue
		}
		if path.IsAbs(text) {
			return false
		}
		todo = append(strings.Split(text, "/"), todo...)
	}
	return true
}

// FuzzExtract: no archive writes outside of its destination or plants a link that leads there, whatever is in it.
func FuzzExtract(f *testing.F) {
	f.Add(tarOf(f, false, entry{name: "a/x", content: "y"}, entry{name: "l", link: "a", kind: tar.TypeSymlink}, entry{name: "l/z", content: "y"}))
	f.Add(tarOf(f, true, entry{name: "a", content: "y"}, entry{name: "h", link: "a", kind: tar.TypeLink}))
	f.Add(zipOf(f, entry{name: "a/x", content: "y"}, entry{name: "l", link: "..", kind: tar.TypeSymlink}))
	for _, entries := range hostile {
		f.Add(tarOf(f, false, entries...))
	}
	f.Fuzz(func(t *testing.T, archive []byte) { unpackAll(t, archive, archive) })
}

// FuzzLinks puts links and names together from a few words, which random bytes rarely do.
func FuzzLinks(f *testing.F) {
	words := []string{".", "..", "a", "b", "l", "/", "/", "/"}
	f.Add([]byte{7, 2, 5, 0, 1, 2, 5, 2, 5, 4, 2, 1, 5, 1, 5, 1})
	f.Fuzz(func(t *testing.T, recipe []byte) {
		text := func() string {
			out := ""
			for n := 0; len(recipe) > 0 && n < 9; n++ {
				c := recipe[0]
				recipe = recipe[1:]
				if c >= 0xf0 {
					break
				}
				out += words[int(c)%len(words)]
			}
			return out
		}
		kinds := []byte{tar.TypeSymlink, tar.TypeSymlink, tar.TypeLink, tar.TypeDir, tar.TypeReg}
		var entries []entry
		for len(recipe) > 0 && len(entries) < 12 {
			e := entry{kind: kinds[int(recipe[0])%len(kinds)]}
			recipe = recipe[1:]
			if e.name = strings.TrimRight(text(), "/"); e.kind == tar.TypeSymlink || e.kind == tar.TypeLink {
				e.link = text()
			}
			// each entry is an archive of its own, so that one that is refused does not end it
			entries = append(entries, e)
		}
		var archives [][]byte
		for _, e := range entries {
			archives = append(archives, tarOf(t, false, e))
		}
		unpackAll(t, archives...)
	})
}
