// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDigestChangesWithWhateverTheProcessReads(t *testing.T) {
	dir := t.TempDir()
	program, input := filepath.Join(dir, "program"), filepath.Join(dir, "input")
	touch(t, program)
	touch(t, input)
	base := spec{name: "x", path: program, args: []string{"--a"}, inputs: []string{input}}
	want := base.digest()
	if base.digest() != want {
		t.Fatal("the same process has two digests")
	}
	other := base
	other.args = []string{"--b"}
	if other.digest() == want {
		t.Error("other arguments, same digest")
	}
	if err := os.WriteFile(input, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	changed := base.digest()
	if changed == want {
		t.Error("another input, same digest")
	}
	if err := os.WriteFile(program, []byte("rebuilt"), 0o600); err != nil {
		t.Fatal(err)
	}
	if base.digest() == changed {
		t.Error("another program, same digest")
	}
}

func TestEveryProcessListensOnLoopbackOnlyAndLeavesKeysInFiles(t *testing.T) {
	c := &Cluster{Dir: "/state", Executable: "/bin/modelplane-local"}
	st := &state{Ports: map[string]int{portEtcd: 1, portAPIServer: 2, portControllerManager: 3, portScheduler: 4}}
	specs := c.specs(pki{dir: "/state/pki"}, st)
	for _, stage := range controlPlaneStages {
		for _, name := range stage {
			s, ok := specs[name]
			if name == nameContainerd && !ok {
				continue
			}
			if !ok {
				t.Fatalf("%s is in a stage and has no process", name)
			}
			if all := strings.Join(s.args, " "); !strings.Contains(all, "127.0.0.1") || strings.Contains(all, "PRIVATE KEY") {
				t.Errorf("%s: %s", name, all)
			}
			if !strings.HasPrefix(s.probe.url, "https://127.0.0.1:") {
				t.Errorf("%s is asked at %s", name, s.probe.url)
			}
		}
	}
}

func TestProbe(t *testing.T) {
	for _, tc := range []struct {
		name, body, want string
		status           int
		ok               bool
	}{
		{"ready", "ok", "", http.StatusOK, true},
		{"failing", "etcd is gone", "", http.StatusInternalServerError, false},
		{"says what is wanted", "[+]x ok", "[+]x ok", http.StatusOK, true},
		{"does not say it yet", "[-]x failed", "[+]x ok", http.StatusOK, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer server.Close()
			pr := probe{url: server.URL, want: tc.want}
			client, err := pr.client(pki{})
			if err != nil {
				t.Fatal(err)
			}
			if err := pr.check(t.Context(), client); (err == nil) != tc.ok {
				t.Errorf("error %v, want ready %v", err, tc.ok)
			}
		})
	}
}

func TestLastLines(t *testing.T) {
	for _, tc := range []struct {
		in   string
		n    int
		want string
	}{
		{"a\nb\nc\n", 2, "b\nc"},
		{"a\nb\nc", 2, "b\nc"},
		{"a\n", 5, "a"},
		{"", 5, ""},
		{"a\n", 0, ""},
	} {
		if got := lastLines(strings.NewReader(tc.in), tc.n); got != tc.want {
			t.Errorf("last %d of %q: %q, want %q", tc.n, tc.in, got, tc.want)
		}
	}
}

func TestLinkRenewsLinksAndSparesFiles(t *testing.T) {
	dir := t.TempDir()
	for _, target := range []string{"/old", "/new"} {
		if err := Link(target, dir, []string{"kubectl"}); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(filepath.Join(dir, "kubectl")); err != nil || got != target {
			t.Errorf("links to %q (%v), want %q", got, err, target)
		}
	}
	touch(t, filepath.Join(dir, "etcd"))
	if err := Link("/new", dir, []string{"etcd"}); err == nil {
		t.Error("somebody's own file was replaced")
	}
}
