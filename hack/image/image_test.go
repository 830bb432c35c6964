// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// commands run in the root of the repository, as people call them.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestImage builds the real thing twice. Looking at the sources tells go test that its result depends on them.
func TestImage(t *testing.T) {
	for _, dir := range []string{"cmd", "internal", "api", "charts"} {
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
			_, err := os.Stat(path)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	first, second := build(t), build(t)
	if !bytes.Equal(first, second) {
		t.Error("the same sources gave two different archives")
	}
	image, platform := only(t, unpack(t, first))
	if want := (v1.Platform{OS: "linux", Architecture: runtime.GOARCH}); !platform.Equals(want) {
		t.Errorf("platform %s, want %s", platform, want)
	}
	checkConfig(t, image)
	contents := filesOf(t, image)
	checkFiles(t, contents)
	checkBinary(t, contents["modelplane"].content)
}

// TestPodImage: what is pulled by every node that runs a model is small. The program is there by itself, when asked for.
func TestPodImage(t *testing.T) {
	const most = 30e6
	program := filepath.Join(t.TempDir(), "bin", "program")
	o, err := parse([]string{"--package", "./cmd/modelplane-pod", "--out", t.TempDir(), "--program", program})
	if err != nil {
		t.Fatal(err)
	}
	made, err := write(&o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %s compressed", o.reference(), megabytes(made.images[0].size))
	if made.images[0].size > most {
		t.Errorf("that is more than %s", megabytes(most))
	}
	raw, err := os.ReadFile(made.path)
	if err != nil {
		t.Fatal(err)
	}
	index := unpack(t, raw)
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(program); err != nil || !bytes.Equal(kept, filesOf(t, image)["modelplane-pod"].content) {
		t.Errorf("the program by itself is another one: %v", err)
	}
	for _, name := range []string{"opt/kserve/mmesh/stop.sh", "opt/app/puller"} { // hooks and containers of pods start these
		if link := filesOf(t, image)[name].header; link == nil || link.Linkname != "/modelplane-pod" {
			t.Errorf("%s does not lead to the program: %+v", name, link)
		}
	}
	config, err := image.ConfigFile()
	if err != nil || strings.Join(config.Config.Entrypoint, " ") != "/modelplane-pod" || filesOf(t, image)["modelplane-pod"].header.Mode != 0o555 {
		t.Errorf("the image starts %v (%v)", config.Config.Entrypoint, err)
	}
}

func build(t *testing.T) []byte {
	t.Helper()
	out := t.TempDir()
	var report strings.Builder
	args := []string{"--version", "v1.2.3+test", "--commit", "0123456789abcdef", "--out", out}
	if err := command(args, &report); err != nil {
		t.Fatal(err)
	}
	t.Log(report.String())
	raw, err := os.ReadFile(filepath.Join(out, "modelplane-v1.2.3_test.oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// unpack returns the image layout in the archive as its own index.
func unpack(t *testing.T, archive []byte) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	for name, f := range untar(t, bytes.NewReader(archive)) {
		path := filepath.Join(dir, name)
		if f.header.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatalf("the archive is not an OCI image layout: %v", err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatalf("the image layout contradicts itself: %v", err)
	}
	return index
}

// only returns the image of a layout with one, and checks what it is called.
func only(t *testing.T, index v1.ImageIndex) (v1.Image, v1.Platform) {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("%d images in the layout, want 1", len(manifest.Manifests))
	}
	descriptor := manifest.Manifests[0]
	want := map[string]string{
		"org.opencontainers.image.ref.name": "v1.2.3_test", "io.containerd.image.name": "modelplane:v1.2.3_test",
	}
	if diff := cmp.Diff(want, descriptor.Annotations); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	image, err := index.Image(descriptor.Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image, *descriptor.Platform
}

func checkConfig(t *testing.T, image v1.Image) {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{
		Entrypoint: []string{"/modelplane"},
		User:       "65532:65532",
		WorkingDir: "/",
		Env:        []string{"PATH=/"},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "modelplane",
			"org.opencontainers.image.description": "One control plane for models on Kubernetes",
			"org.opencontainers.image.version":     "v1.2.3+test",
			"org.opencontainers.image.revision":    "0123456789abcdef",
			"org.opencontainers.image.created":     "2023-11-14T22:13:20Z",
			"org.opencontainers.image.source":      "https://github.com/modelplane/modelplane",
			"org.opencontainers.image.licenses":    "Apache-2.0",
		},
	}
	if diff := cmp.Diff(want, file.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if layers, err := image.Layers(); err != nil || len(layers) != 1 {
		t.Errorf("%d layers (%v), want 1", len(layers), err)
	}
}

func checkFiles(t *testing.T, contents map[string]entry) {
	t.Helper()
	for name, mode := range map[string]int64{"modelplane": 0o555, "etc/passwd": 0o444, "etc/group": 0o444} {
		got, ok := contents[name]
		if !ok {
			t.Errorf("%s is missing", name)
			continue
		}
		if got.header.Mode != mode || got.header.Uid != 0 {
			t.Errorf("%s: mode %o owner %d, want %o and 0", name, got.header.Mode, got.header.Uid, mode)
		}
		if got.header.ModTime.Unix() != 0 {
			t.Errorf("%s carries the time %s", name, got.header.ModTime)
		}
	}
	if link := contents["model-registry"].header; link == nil || link.Linkname != "modelplane" {
		t.Errorf("model-registry does not lead to the program: %+v", link)
	}
	if passwd := string(contents["etc/passwd"].content); !strings.Contains(passwd, "\nnonroot:x:65532:65532:") {
		t.Errorf("no user 65532 in etc/passwd:\n%s", passwd)
	}
	_, err := os.Stat("/" + rootsPath)
	if _, ok := contents[rootsPath]; ok != (err == nil) {
		t.Errorf("certificate authorities in the image: %t, on this machine: %t", ok, err == nil)
	}
}

// checkBinary runs the binary as a container runtime would.
func checkBinary(t *testing.T, content []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "modelplane")
	if err := os.WriteFile(path, content, 0o555); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "version", "--output", "json").Output()
	if err != nil {
		t.Fatalf("the binary of the image does not run: %v", err)
	}
	got := map[string]string{}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	want := map[string]string{
		"version": "v1.2.3+test", "commit": "0123456789abcdef", "date": "2023-11-14T22:13:20Z",
		"goVersion": runtime.Version(), "platform": "linux/" + runtime.GOARCH,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("version (-want +got):\n%s", diff)
	}
}

type entry struct {
	header  *tar.Header
	content []byte
}

func untar(t *testing.T, from io.Reader) map[string]entry {
	t.Helper()
	out := map[string]entry{}
	reader := tar.NewReader(from)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		out[header.Name] = entry{header, content}
	}
}

func filesOf(t *testing.T, image v1.Image) map[string]entry {
	t.Helper()
	flat := mutate.Extract(image)
	defer func() { _ = flat.Close() }()
	return untar(t, flat)
}

// TestSeveralPlatforms looks at the layout alone; compiling for other machines is Go's.
func TestSeveralPlatforms(t *testing.T) {
	platforms, err := parsePlatforms("linux/amd64,linux/arm64,linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	o := options{name: "registry.example/team/modelplane", version: "v1.2.3", platforms: platforms}
	dir := t.TempDir()
	var images []v1.Image
	for _, p := range platforms {
		layer, err := layerOf([]file{{name: "modelplane", mode: 0o555, content: []byte(p.arch)}}, filepath.Join(dir, p.arch), gzip.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		image, err := assemble(o, p, layer)
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, image)
	}
	digest, err := writeLayout(o, images, filepath.Join(dir, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pack(filepath.Join(dir, "layout"), filepath.Join(dir, "archive")); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "archive"))
	if err != nil {
		t.Fatal(err)
	}
	inner, err := unpack(t, raw).ImageIndex(digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range manifest.Manifests {
		image, err := inner.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Platform.String()+" "+config.Architecture+" "+string(filesOf(t, image)["modelplane"].content))
	}
	want := []string{"linux/amd64 amd64 amd64", "linux/arm64 arm64 arm64"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
}

func TestWrongCalls(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--platforms windows/amd64", `"windows/amd64" is not supported`},
		{"--platforms linux", `"linux" is not supported`},
		{"extra", `"extra" is not expected`},
		{"--name UPPER", `"UPPER:v0.1.0" is not the name of an image`},
		{"--version v1/2", `"modelplane:v1/2" is not the name of an image`},
		{"--commit a'b", `--commit "a'b" is not a commit`},
		{"--program bin/x --tree dist", "--program takes what is compiled"},
	} {
		if err := command(strings.Fields(c.args), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.args, err, c.want)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if err := command(nil, io.Discard); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("a wrong SOURCE_DATE_EPOCH: %v", err)
	}
}

// TestTree packs files that are there already, under a name that follows from them.
func TestTree(t *testing.T) {
	tree := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"server": 0o755, "lib/x.so": 0o640} {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	reference := func() string {
		t.Helper()
		var out strings.Builder
		if err := command([]string{"--by-content", "--tree", tree, "--name", "server", "--out", t.TempDir()}, &out); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out.String())
	}
	first := reference()
	if again := reference(); again != first {
		t.Errorf("the same files are %s and %s", first, again)
	}
	if err := os.WriteFile(filepath.Join(tree, "lib/x.so"), []byte("changed"), 0o640); err != nil {
		t.Fatal(err)
	}
	if changed := reference(); changed == first || !strings.HasPrefix(changed, "server:") {
		t.Errorf("other files are %s, and were %s", changed, first)
	}
	entries, err := addTree(nil, tree)
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]int64{}
	for _, e := range entries {
		modes[e.name] = e.mode
	}
	if diff := cmp.Diff(map[string]int64{"lib/": 0o755, "lib/x.so": 0o444, "server": 0o555}, modes); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestAgain: what would come out the same is not built again, and whatever changes is.
func TestAgain(t *testing.T) {
	t.Chdir(t.TempDir())
	put := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("server", 0o755); err != nil {
		t.Fatal(err)
	}
	put("go.mod", "module example.com/images\n\ngo 1.24\n")
	put("server/main.go", "package main\n\nfunc main() {}\n")
	put("roots.crt", "authorities")
	var called, written string
	build := func(what, version string, builds, renames bool) {
		t.Helper()
		var out strings.Builder
		if err := command([]string{"--by-content", "--package", "./server", "--version", version,
			"--ca-certificates", "roots.crt", "--out", "out", "--program", "bin/server"}, &out); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		var now string
		for _, path := range []string{"out/server.oci.tar", "bin/server"} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			now += info.ModTime().String()
		}
		if (now != written) != builds {
			t.Errorf("%s: it is built: %t, want %t", what, now != written, builds)
		}
		if (out.String() != called) != renames {
			t.Errorf("%s: it was %s and is %s", what, called, out.String())
		}
		called, written = out.String(), now
	}
	build("for the first time", "v1", true, true)
	build("as it was", "v1", false, false)
	put("server/main.go", "package main\n\nfunc main() { println() }\n")
	build("another program", "v1", true, true)
	build("as it was", "v1", false, false)
	put("roots.crt", "others")
	build("other authorities", "v1", true, true)
	build("another version", "v2", true, true)
	put("bin/server", "another one")
	build("the program was replaced", "v2", true, false)
	put("out/server.oci.tar", "another one")
	build("the archive was replaced", "v2", true, false)
	build("as it was", "v2", false, false)
}

// TestTreeAgain: files that are as they were are not packed again.
func TestTreeAgain(t *testing.T) {
	tree, out := t.TempDir(), t.TempDir()
	put := func(content string, mode fs.FileMode) {
		t.Helper()
		path := filepath.Join(tree, "server")
		if err := errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	var written time.Time
	build := func(what string, builds bool) {
		t.Helper()
		if err := command([]string{"--by-content", "--tree", tree, "--name", "server", "--out", out}, io.Discard); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		info, err := os.Stat(filepath.Join(out, "server.oci.tar"))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if now := info.ModTime(); now.Equal(written) == builds {
			t.Errorf("%s: it is packed: %t, want %t", what, !now.Equal(written), builds)
		}
		written = info.ModTime()
	}
	put("one", 0o755)
	build("for the first time", true)
	build("as it was", false)
	put("two", 0o755)
	build("another program", true)
	put("two", 0o644)
	build("which cannot be started", true)
	build("as it was", false)
}
