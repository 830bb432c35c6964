// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/fetch/dest"
	"github.com/modelplane/modelplane/internal/fetch/fetchtest"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
	"github.com/modelplane/modelplane/internal/kube/address"
)

// hush stands for secrets; no message and no log line may contain it.
const hush = "hush-hush"

// scene is what a test fetches with.
type scene struct {
	env map[string]string
	log bytes.Buffer
	Options
}

func newScene(env map[string]string) *scene {
	s := &scene{env: env}
	s.Options = Options{
		Parallel: 4, Env: func(name string) string { return s.env[name] },
		Log: slog.New(slog.NewJSONHandler(&s.log, nil)),
		Tune: func(c *transfer.Client) {
			c.Segment = 64 << 10
			c.Attempts = 3
			c.Pause = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
		},
	}
	return s
}

// fetch runs one source into a new directory and returns what is there.
func (s *scene) fetch(t *testing.T, source string) (map[string]string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mnt", "models")
	err := Run(t.Context(), []Pair{{Source: source, Destination: dir}}, s.Options)
	if text := s.log.String(); strings.Contains(text, hush) {
		t.Errorf("a secret is in the log: %s", text)
	}
	if err != nil && strings.Contains(err.Error(), hush) {
		t.Errorf("a secret is in the message: %v", err)
	}
	return files(t, dir), err
}

// files reads a directory, without directories.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path) // it is below
		content, err := os.ReadFile(path)
		out[name] = string(content)
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return out
}

// write makes files.
func write(t *testing.T, dir string, content map[string]string) {
	t.Helper()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// packed is an archive with one file.
func packed(t *testing.T, name, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestLocal(t *testing.T) {
	from := t.TempDir()
	write(t, from, map[string]string{
		"tree/model.onnx": "weights", "tree/sub/labels": "a b", "tree/..data/model.onnx": "weights",
		"packed/m.tar.gz": string(packed(t, "model.onnx", "weights")), "empty/..x": "",
	})
	if err := os.Symlink("model.onnx", filepath.Join(from, "tree", "latest")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(from, "out"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../tree/model.onnx", filepath.Join(from, "out", "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, source string
		want         map[string]string
		wrong        string
	}{
		{name: "a tree", source: "file://" + from + "/tree", want: map[string]string{"model.onnx": "weights", "latest": "weights", "sub/labels": "a b"}},
		{name: "a path", source: from + "/tree/", want: map[string]string{"model.onnx": "weights", "latest": "weights", "sub/labels": "a b"}},
		{name: "a file", source: "file://" + from + "/tree/model.onnx", want: map[string]string{"model.onnx": "weights"}},
		{name: "an archive", source: from + "/packed/m.tar.gz", want: map[string]string{"model.onnx": "weights"}},
		{name: "a directory with an archive", source: from + "/packed", want: map[string]string{"model.onnx": "weights"}},
		{name: "nothing", source: "file://" + from + "/nothing", wrong: "no such file or directory"},
		{name: "a claim", source: "pvc://claim/nothing", wrong: "no such file or directory"},
		{name: "no files", source: from + "/empty", wrong: "no files"},
		{name: "a link out of the model", source: from + "/out", wrong: "leads out of the model"},
		{name: "a scheme of nobody", source: "git://host/x", wrong: "git:// addresses; use one of s3"},
		{name: "a scheme of others", source: "modelscope://a/b", wrong: "modelscope:// addresses"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := newScene(nil).fetch(t, c.source)
			checkResult(t, got, err, c.want, c.wrong)
		})
	}
}

// TestShippedContainer: what the chart lets through must be known here.
func TestShippedContainer(t *testing.T) {
	text, err := os.ReadFile("../../charts/modelplane/files/storagecontainers/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var shipped struct {
		Spec struct {
			SupportedURIFormats []struct{ Prefix string } `json:"supportedUriFormats"`
		}
	}
	if err := yaml.Unmarshal(text, &shipped); err != nil || len(shipped.Spec.SupportedURIFormats) == 0 {
		t.Fatalf("no formats: %v", err)
	}
	for _, format := range shipped.Spec.SupportedURIFormats {
		if kind, _, _ := strings.Cut(format.Prefix, "://"); kind != "" && !slices.Contains(schemes, kind) {
			t.Errorf("models cannot be fetched from %s", format.Prefix)
		}
	}
}

func checkResult(t *testing.T, got map[string]string, err error, want map[string]string, wrong string) {
	t.Helper()
	if wrong != "" {
		if err == nil || !strings.Contains(err.Error(), wrong) {
			t.Fatalf("error %v, want %q", err, wrong)
		}
		if text := err.Error(); !strings.HasPrefix(text, "Cannot fetch ") || !strings.HasSuffix(text, ".") || strings.Contains(text, "\n") || len(text) > 500 {
			t.Errorf("%q is not one sentence", text)
		}
		for name := range got { // others that came before may be there, whole
			if strings.Contains(err.Error(), name) {
				t.Errorf("%s was left under its name", name)
			}
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWeb(t *testing.T) {
	large := string(fetchtest.Content(1 << 20))
	archive := packed(t, "model.onnx", "weights")
	for _, c := range []struct {
		name, path string
		env        map[string]string
		server     func(*fetchtest.Server)
		options    func(*Options)
		want       map[string]string
		wrong      string
		header     string
	}{
		{name: "a file", path: "/model.onnx?sig=" + hush, want: map[string]string{"model.onnx": large}},
		{name: "an archive", path: "/m.tar.gz", want: map[string]string{"model.onnx": "weights"}},
		{name: "an archive named by the query", path: "/get?file=m.tar.gz", want: map[string]string{"model.onnx": "weights"}},
		{name: "headers", path: "/model.onnx", env: map[string]string{"127.0.0.1-headers": `{"X-Key": "` + hush + `"}`},
			want: map[string]string{"model.onnx": large}, header: hush},
		{name: "broken headers", path: "/model.onnx", env: map[string]string{"127.0.0.1-headers": `{"X-Key": "` + hush}, wrong: "no JSON object"},
		{name: "an impossible header", path: "/model.onnx", env: map[string]string{"127.0.0.1-headers": `{"X Key": "` + hush + `"}`}, wrong: "no HTTP header"},
		{name: "nothing", path: "/nothing?sig=" + hush, wrong: "/nothing: it does not exist (404); check the address"},
		{name: "refused", path: "/model.onnx", server: func(s *fetchtest.Server) { s.Spoil(fetchtest.Fault{Status: 403}) }, wrong: "(403); check the headers"},
		{name: "no file", path: "/models/", wrong: "names no file"},
		{name: "a login page", path: "/model.onnx", server: func(s *fetchtest.Server) { s.Header.Set("Content-Type", "text/html") }, wrong: "web page"},
		{name: "a damaged archive", path: "/bad.tgz", wrong: "the archive is cut off"},
		{name: "too large", path: "/model.onnx", options: func(o *Options) { o.Limits = dest.Limits{Bytes: 1000} }, wrong: "limit of 1000 B allows; use a smaller model"},
		{name: "too large archive", path: "/m.tar.gz", options: func(o *Options) { o.Limits = dest.Limits{Bytes: 6} }, wrong: "limit of 6 B"},
		{name: "cut and mended", path: "/model.onnx", server: func(s *fetchtest.Server) { s.Spoil(fetchtest.Fault{CutAfter: 50}, fetchtest.Fault{Status: 500}) },
			want: map[string]string{"model.onnx": large}},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := fetchtest.New(t, map[string][]byte{
				"/model.onnx": []byte(large), "/m.tar.gz": archive, "/get": archive, "/bad.tgz": archive[:len(archive)/2],
			})
			if c.server != nil {
				c.server(server)
			}
			s := newScene(c.env)
			if c.options != nil {
				c.options(&s.Options)
			}
			got, err := s.fetch(t, server.URL+c.path)
			checkResult(t, got, err, c.want, c.wrong)
			for _, r := range server.Requests() {
				if r.Header.Get("X-Key") != c.header {
					t.Errorf("header %q, want %q", r.Header.Get("X-Key"), c.header)
				}
			}
		})
	}
}

// TestSeveralModels: each goes to its place, limits hold for all together, and what is there already is left.
func TestSeveralModels(t *testing.T) {
	server := fetchtest.New(t, map[string][]byte{"/a.bin": []byte("aaaa"), "/b.bin": []byte("bbbb")})
	dir := t.TempDir()
	pairs, err := Pairs([]string{server.URL + "/a.bin", dir + "/a", server.URL + "/b.bin", dir + "/b", dir + "/c", dir + "/c"})
	if err != nil {
		t.Fatal(err)
	}
	s := newScene(nil)
	if err := Run(t.Context(), pairs, s.Options); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a/a.bin": "aaaa", "b/b.bin": "bbbb"}, files(t, dir)); diff != "" {
		t.Error(diff)
	}
	s.Limits.Bytes = 7
	if err := Run(t.Context(), pairs, s.Options); err == nil || !strings.Contains(err.Error(), "/b.bin") {
		t.Errorf("error %v, want one about the second model", err)
	}
	for _, args := range [][]string{nil, {"a"}, {"a", "b", "c"}, {"a", ""}} {
		if _, err := Pairs(args); err == nil {
			t.Errorf("%q are no pairs", args)
		}
	}
}

// TestBrokenAddressesHideSecrets: an address that cannot be read is told of without the password in it.
func TestBrokenAddressesHideSecrets(t *testing.T) {
	for _, source := range []string{
		"https://user:" + hush + "%zz@host/x", "https://user:" + hush + "/1@host/x", "https://user:" + hush, "https://user:1?" + hush + "@/x",
		"https://user:" + hush + " @host/x", "s3://key:" + hush + "@/", "hdfs://user:" + hush + "@host/x", "oci://user:" + hush + "@registry/x y",
		"ftp://user:" + hush + "@host/x", "user:" + hush + "@host/x", "https:/user:" + hush + "@host/x", "file://user:" + hush + "@host/x",
	} {
		if _, err := newScene(nil).fetch(t, source); err == nil {
			t.Errorf("%s was fetched", source)
		}
	}
}

// TestEncryptedModelsAreRefused: what nobody decrypts must not arrive as if it were a model.
func TestEncryptedModelsAreRefused(t *testing.T) {
	server := fetchtest.New(t, map[string][]byte{"/a.bin": []byte("aaaa")})
	got, err := newScene(map[string]string{"CONFIDENTIAL_ENABLED": "true"}).fetch(t, server.URL+"/a.bin")
	if err == nil || !strings.Contains(err.Error(), "cannot be decrypted") || len(got) > 0 || len(server.Requests()) > 0 {
		t.Errorf("error %v, files %v", err, got)
	}
}

// TestStopped: a signal ends it at once and leaves nothing incomplete.
func TestStopped(t *testing.T) {
	server := fetchtest.New(t, map[string][]byte{"/a.bin": []byte("aaaa")})
	server.Spoil(fetchtest.Fault{Silent: true})
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	go func() {
		for len(server.Requests()) == 0 {
			<-time.After(time.Millisecond)
		}
		cancel()
	}()
	err := Run(ctx, []Pair{{Source: server.URL + "/a.bin", Destination: dir}}, newScene(nil).Options)
	if err == nil || !strings.Contains(err.Error(), "was stopped") {
		t.Errorf("error %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 { // then there are none
		t.Errorf("%v was left", entries)
	}
}

// TestProgress: lines with numbers, and nothing when nobody wants them.
func TestProgress(t *testing.T) {
	server := fetchtest.New(t, map[string][]byte{"/a.bin": []byte("aaaa")})
	server.Spoil(fetchtest.Fault{Silent: true})
	s := newScene(nil)
	s.ProgressEvery = time.Millisecond
	s.Tune = func(c *transfer.Client) { c.Stall = 100 * time.Millisecond }
	if _, err := s.fetch(t, server.URL+"/a.bin"); err != nil {
		t.Fatal(err)
	}
	var line struct {
		Msg     string
		OfFiles int
	}
	for _, text := range strings.Split(strings.TrimSpace(s.log.String()), "\n") {
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if line.Msg == "Progress" && line.OfFiles == 1 {
			return
		}
	}
	t.Errorf("no progress in %s", &s.log)
}

// TestTell: the file of a pod is written, and none is made where there is no pod.
func TestTell(t *testing.T) {
	file := filepath.Join(t.TempDir(), "termination-log")
	failure := &Failure{sentence: "Cannot fetch x: y."}
	if err := Tell(file, failure); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Error("a file was made")
	}
	if err := os.WriteFile(file, []byte("something longer than the sentence that is written to it"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Tell(file, failure); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != failure.Error() {
		t.Errorf("%q, %v", got, err)
	}
}

// FuzzAddress: no address panics, and what is shown of one has no query and no user.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"s3://b/k", "https://u:p@h/x?sig=1", "hf://o/r:v", "oci://r/i:t", "gs://b", "file:///x", "pvc://c/p", "abfs://c@a.dfs.core.windows.net/p", "://", "http://[::1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		// most are refused, and that is fine
		_, _ = parse(source, func(string) string { return "" })
		if shown := address.Shown(source); scheme(source) != "" && strings.Contains(shown, "?sig") {
			t.Errorf("%q shows its query", shown)
		}
	})
}
