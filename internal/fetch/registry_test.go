// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/fetch/fetchtest"
)

// fakeRegistry answers as a model registry does, with lists in pages of two at most.
type fakeRegistry struct {
	*httptest.Server
	token string // wanted, if not empty

	mu     sync.Mutex
	tokens []string // that were shown
	faults []int    // the next answers
	models []map[string]string
	below  map[string][]map[string]string // versions by model, artifacts by "v" and version
}

const registryPath = "/api/model_registry/v1alpha3/"

func newFakeRegistry(t *testing.T, start func(http.Handler) *httptest.Server) *fakeRegistry {
	r := &fakeRegistry{below: map[string][]map[string]string{}}
	r.Server = start(r)
	t.Cleanup(r.Close)
	return r
}

func (f *fakeRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens = append(f.tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if len(f.faults) > 0 {
		w.WriteHeader(f.faults[0])
		f.faults = f.faults[1:]
		return
	}
	if f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	path, q := strings.TrimPrefix(r.URL.Path, registryPath), r.URL.Query()
	parts := strings.Split(path, "/")
	switch {
	case path == "registered_model":
		findOne(w, f.models, q)
	case path == "registered_models":
		listPage(w, f.models, q)
	case path == "model_version":
		findOne(w, f.below[q.Get("parentResourceId")], q)
	case len(parts) == 3 && parts[2] == "versions":
		listPage(w, f.below[parts[1]], q)
	case len(parts) == 3 && parts[2] == "artifacts":
		listPage(w, f.below["v"+parts[1]], q)
	default:
		http.NotFound(w, r)
	}
}

// findOne compares as the known server does: % and _ are wildcards, and more than one match is none.
func findOne(w http.ResponseWriter, all []map[string]string, q url.Values) {
	if strings.Contains(q.Get("name"), "'") {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	var found []map[string]string
	for _, e := range all {
		if e["name"] == q.Get("name") || strings.Contains(q.Get("name"), "%") {
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(found[0]) // the client may go
}

func listPage(w http.ResponseWriter, all []map[string]string, q url.Values) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b map[string]string) int {
		by := map[string]string{"CREATE_TIME": "createTimeSinceEpoch", "ID": "id"}[q.Get("orderBy")]
		x, _ := strconv.Atoi(a[by])
		y, _ := strconv.Atoi(b[by])
		if q.Get("sortOrder") == "DESC" {
			return y - x
		}
		return x - y
	})
	from := 0
	if raw, err := base64.StdEncoding.DecodeString(q.Get("nextPageToken")); err == nil {
		from, _ = strconv.Atoi(string(raw))
	}
	to, next := min(from+2, len(all)), ""
	if to < len(all) {
		next = base64.StdEncoding.EncodeToString([]byte(strconv.Itoa(to)))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"items": all[from:to], "nextPageToken": next, "size": to - from, "pageSize": 2})
}

// model registers one with versions and artifacts: "v1 100 LIVE" and "model-artifact 10 s3://x".
func (f *fakeRegistry) model(name string, versions ...[]string) {
	id := strconv.Itoa(len(f.models) + 1)
	f.models = append(f.models, map[string]string{"id": id, "name": name})
	for i, v := range versions {
		words := strings.Fields(v[0])
		own := id + strconv.Itoa(i)
		f.below[id] = append(f.below[id], map[string]string{"id": own, "name": words[0], "createTimeSinceEpoch": words[1], "state": words[2]})
		for j, a := range v[1:] {
			words := strings.Fields(a + " ")
			e := map[string]string{"id": own + strconv.Itoa(j), "artifactType": words[0], "createTimeSinceEpoch": words[1]}
			if len(words) > 2 {
				e["uri"] = words[2]
			}
			f.below["v"+own] = append(f.below["v"+own], e)
		}
	}
}

func TestModelRegistry(t *testing.T) {
	store := fetchtest.New(t, map[string][]byte{"/old": []byte("old"), "/new": []byte("new"), "/late": []byte("late")})
	reg := newFakeRegistry(t, httptest.NewServer)
	at := func(kind string, created int, name string) string {
		return fmt.Sprintf("%s %d %s/%s", kind, created, store.URL, name)
	}
	const live = "LIVE"
	// By number v0.9 is the newest of all, by creation v2 is, and the archived ones do not count.
	iris := [][]string{{"v1 100 " + live, at("model-artifact", 1, "old")}, {"v2 900 " + live, "model-artifact 1", at("model-artifact", 3, "new"),
		at("model-artifact", 2, "old"), at("doc-artifact", 9, "late"), "metric 8"}, {"v3 950 ARCHIVED", at("model-artifact", 1, "late")},
		{"v4 960 ARCHIVED", at("model-artifact", 1, "late")}, {"v0.9 200 " + live, at("model-artifact", 1, "old")}}
	reg.model("iris", iris...)
	for _, odd := range []string{"100% _sure_", "it's \"mine\"", "org/model"} {
		reg.model(odd, []string{"v'1' 1 " + live, at("model-artifact", 1, "new")})
	}
	reg.model("attic", []string{"v1 1 ARCHIVED", at("model-artifact", 1, "old")})
	reg.model("bare", []string{"v1 1 " + live, "doc-artifact 1 " + store.URL + "/old"})
	for _, uri := range []string{"pvc://claim/x", "model-registry://iris", "file:///etc/passwd", "/etc/passwd", "git://x/y"} {
		reg.model(strings.SplitN(strings.ReplaceAll(uri, "/", ""), ":", 2)[0]+"-m", []string{"v1 1 " + live, "model-artifact 1 " + uri})
	}
	alone := newFakeRegistry(t, httptest.NewServer)
	alone.model("other", []string{"v1 1 " + live, at("model-artifact", 1, "new")})
	host := strings.TrimPrefix(reg.URL, "http://")
	configured := map[string]string{"MODEL_REGISTRY_BASE_URL": host}
	for _, c := range []struct {
		name, source string
		env          map[string]string
		want         string // the file that arrives
		wrong        string // a part of the message
	}{
		{name: "newest by creation", source: "model-registry://iris", want: "new"},
		{name: "base with a scheme and a path", source: "model-registry://iris/", env: map[string]string{"MODEL_REGISTRY_BASE_URL": reg.URL + registryPath}, want: "new"},
		{name: "version", source: "model-registry://iris/v1", want: "old"},
		{name: "version with a dot", source: "model-registry://iris/v0.9", want: "old"},
		{name: "archived, but named", source: "model-registry://iris/v3", want: "late"},
		{name: "host", source: "model-registry://" + host + "/iris", env: map[string]string{}, want: "new"},
		{name: "host and version", source: "model-registry://" + host + "/iris/v1", env: map[string]string{}, want: "old"},
		{name: "percent and underscore", source: "model-registry://100%25%20_sure_", want: "new"},
		{name: "quotes", source: "model-registry://it's%20%22mine%22/v'1'", want: "new"},
		{name: "slash", source: "model-registry://org%2Fmodel", want: "new"},
		{name: "no such model", source: "model-registry://tulip", wrong: host + ` has no registered model "tulip"; check the name`},
		{name: "a pattern is no name", source: "model-registry://o%25", env: map[string]string{"MODEL_REGISTRY_BASE_URL": alone.URL}, wrong: `has no registered model "o%"`},
		{name: "no such version", source: "model-registry://iris/v9", wrong: `has no version "v9" of the registered model "iris" (http://iris does not answer as a registry itself); check`},
		{name: "all archived", source: "model-registry://attic", wrong: `no version of the registered model "attic" that is not archived; register one`},
		{name: "no model artifact", source: "model-registry://bare", wrong: `no model artifact with a uri in version "v1" of the registered model "bare"; register`},
		{name: "claim", source: "model-registry://pvc-m", wrong: "a claim must be mounted before the registry can be asked; write pvc://claim/x as storageUri"},
		{name: "loop", source: "model-registry://model-registry-m", wrong: "leads back to a registry"},
		{name: "file", source: "model-registry://file-m", wrong: "file:///etc/passwd, a path that only means something where"},
		{name: "path", source: "model-registry://etcpasswd-m", wrong: "/etc/passwd, a path that only means something where"},
		{name: "unknown scheme", source: "model-registry://git-m", wrong: "the model registry says git://x/y: models cannot be fetched from git://"},
		{name: "none configured", source: "model-registry://iris", env: map[string]string{}, wrong: "none is configured; write model-registry://HOST"},
		{name: "no registry", source: "model-registry://" + strings.TrimPrefix(store.URL, "http://") + "/iris", env: map[string]string{},
			wrong: "does not answer as a model registry, and none is configured"},
		{name: "another server", source: "model-registry://iris", env: map[string]string{"MODEL_REGISTRY_BASE_URL": store.URL},
			wrong: `has no registered model "iris"; check the name and which registry is asked`},
		{name: "too many names", source: "model-registry://h/a/b/c", wrong: "more names than a host, a model and a version"},
		{name: "no host", source: "model-registry://a_b/c/d", wrong: "no host"},
		{name: "empty name", source: "model-registry://a//d", wrong: "an empty name"},
		{name: "bad percent", source: "model-registry://100%", wrong: "written as %25"},
		{name: "bad base", source: "model-registry://iris", env: map[string]string{"MODEL_REGISTRY_BASE_URL": "ftp://x"}, wrong: "MODEL_REGISTRY_BASE_URL is no address"},
		{name: "bad scheme", source: "model-registry://iris", env: map[string]string{"MODEL_REGISTRY_SCHEME": "gopher"}, wrong: "must be http or https"},
		{name: "bad namespace", source: "model-registry://iris?namespace=a.b", wrong: "names no namespace"},
		{name: "bad parameter", source: "model-registry://iris?token=" + hush, wrong: "a parameter other than namespace"},
		{name: "host and namespace", source: "model-registry://h/iris/v1?namespace=a", wrong: "a host and a namespace; keep one"},
		{name: "namespace", source: "model-registry://iris?namespace=nowhere", env: map[string]string{"MODEL_REGISTRY_CLUSTER_DOMAIN": "invalid"},
			wrong: "http://model-registry-service.nowhere.invalid:8080 does not tell of the registered model \"iris\""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(c.env)
			if s.env == nil {
				s.env = configured
			}
			got, err := s.fetch(t, c.source)
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("error = %v, want %q", err, c.wrong)
				}
				return
			}
			if want := map[string]string{c.want: c.want}; err != nil || !cmp.Equal(got, want) {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
		})
	}
}

// TestModelRegistryPatience: what fails for a moment is asked again, and what is refused is not.
func TestModelRegistryPatience(t *testing.T) {
	store := fetchtest.New(t, map[string][]byte{"/m": []byte("m")})
	reg := newFakeRegistry(t, httptest.NewServer)
	reg.model("iris", []string{"v1 1 LIVE", "model-artifact 1 " + store.URL + "/m"})
	env := map[string]string{"MODEL_REGISTRY_BASE_URL": reg.URL}
	reg.faults = []int{http.StatusServiceUnavailable, http.StatusBadGateway}
	if got, err := newScene(env).fetch(t, "model-registry://iris"); err != nil || got["m"] != "m" {
		t.Errorf("got %v, %v", got, err)
	}
	before := len(reg.tokens)
	reg.faults = []int{http.StatusForbidden}
	_, err := newScene(env).fetch(t, "model-registry://iris")
	if err == nil || !strings.Contains(err.Error(), "access is denied (403); give the pod's service account a role") || len(reg.tokens) != before+1 {
		t.Errorf("error = %v after %d requests", err, len(reg.tokens)-before)
	}
}

// TestModelRegistryToken: a token reaches the registry that it is meant for, and nobody else.
func TestModelRegistryToken(t *testing.T) {
	store := fetchtest.New(t, map[string][]byte{"/m": []byte("m")})
	reg := newFakeRegistry(t, httptest.NewTLSServer)
	reg.Config.ErrorLog = log.New(io.Discard, "", 0) // of a client that does not trust it
	reg.token = hush
	reg.model("iris", []string{"v1 1 LIVE", "model-artifact 1 " + store.URL + "/m"})
	dir := t.TempDir()
	write(t, dir, map[string]string{"token": hush + "\n", "bad": "two words", "ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: reg.Certificate().Raw}))})
	env := func(more ...string) map[string]string {
		out := map[string]string{"MODEL_REGISTRY_BASE_URL": reg.URL, "MODEL_REGISTRY_CA_FILE": filepath.Join(dir, "ca.crt")}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	file := filepath.Join(dir, "token")
	for name, c := range map[string]struct {
		env    map[string]string
		source string
		wrong  string
	}{
		"from a file":     {env: env("MODEL_REGISTRY_TOKEN_FILE", file)},
		"from a variable": {env: env("MODEL_REGISTRY_TOKEN", hush)},
		"none":            {env: env(), wrong: "access is denied (401); give the pod's service account a role"},
		"no file":         {env: env("MODEL_REGISTRY_TOKEN_FILE", filepath.Join(dir, "nothing")), wrong: "cannot be read from the file"},
		"no token":        {env: env("MODEL_REGISTRY_TOKEN_FILE", filepath.Join(dir, "bad")), wrong: "holds no token"},
		"unknown signer":  {env: env("MODEL_REGISTRY_TOKEN", hush, "MODEL_REGISTRY_CA_FILE", ""), wrong: "check the address of the registry, its certificate"},
		"no CA file":      {env: env("MODEL_REGISTRY_CA_FILE", filepath.Join(dir, "nothing")), wrong: "certificates to trust is not there"},
		"asked with its port": {env: env("MODEL_REGISTRY_TOKEN", hush, "MODEL_REGISTRY_BASE_URL", "", "MODEL_REGISTRY_SCHEME", "https"),
			source: "model-registry://" + strings.TrimPrefix(reg.URL, "https://") + "/iris"},
	} {
		t.Run(name, func(t *testing.T) {
			source := "model-registry://iris"
			if c.source != "" {
				source = c.source
			}
			got, err := newScene(c.env).fetch(t, source)
			switch {
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("error = %v, want %q", err, c.wrong)
			case c.wrong == "" && (err != nil || got["m"] != "m"):
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	for _, r := range store.Requests() {
		if r.Header.Get("Authorization") != "" {
			t.Error("the storage was shown the token")
		}
	}
	elsewhere := newFakeRegistry(t, httptest.NewServer)
	elsewhere.model("iris", []string{"v1 1 LIVE", "model-artifact 1 " + store.URL + "/m"})
	away := httptest.NewServer(http.RedirectHandler(elsewhere.URL+registryPath+"registered_model?name=iris", http.StatusFound))
	t.Cleanup(away.Close)
	_, err := newScene(map[string]string{"MODEL_REGISTRY_BASE_URL": away.URL, "MODEL_REGISTRY_TOKEN_FILE": file}).fetch(t, "model-registry://iris")
	if shown := strings.Join(elsewhere.tokens, ""); len(elsewhere.tokens) == 0 || shown != "" {
		t.Errorf("another host was asked %d times and shown %q (%v)", len(elsewhere.tokens), shown, err)
	}
}
