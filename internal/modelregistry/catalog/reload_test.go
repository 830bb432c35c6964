// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/process"
)

// until waits for something that another goroutine does.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick, late := time.NewTicker(5*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s did not come true", what)
		}
	}
}

// logged is a log that several goroutines write.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// running is a catalog that follows its files.
type running struct {
	*server
	said *logged
}

func run(t *testing.T, getenv func(string) string, paths ...string) *running {
	t.Helper()
	r := &running{&server{log: &bytes.Buffer{}}, &logged{}}
	r.keeper = newKeeper(paths, nil, getenv, slog.New(slog.NewTextHandler(r.said, &slog.HandlerOptions{Level: slog.LevelDebug})), NewMetrics(prometheus.NewRegistry()))
	r.reload(t.Context())
	r.Handler = r.handler(nil, process.Stopping(t.Context()))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.keeper.run(ctx, 10*time.Millisecond) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(r.said.String())
		}
	})
	return r
}

// has waits for a list of names.
func (r *running) has(t *testing.T, path, want string) {
	t.Helper()
	got := ""
	defer func() {
		if t.Failed() {
			t.Logf("%s has %q, not %q", path, got, want)
		}
	}()
	until(t, "has "+want, func() bool { got = names(r.get(t, path)); return got == want })
}

// mounted is a directory that changes as a mounted ConfigMap does: by a link to a directory that is new each time.
type mounted struct {
	dir string
	n   int
}

func (m *mounted) set(t *testing.T, files map[string]string) {
	t.Helper()
	m.n++
	fresh := filepath.Join(m.dir, fmt.Sprintf("..%d", m.n))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(fresh, 0o700))
	for name, content := range files {
		must(os.WriteFile(filepath.Join(fresh, name), []byte(content), 0o600))
		if _, err := os.Lstat(filepath.Join(m.dir, name)); err != nil {
			must(os.Symlink(filepath.Join("..data", name), filepath.Join(m.dir, name)))
		}
	}
	must(os.Symlink(filepath.Base(fresh), filepath.Join(m.dir, "..next")))
	must(os.Rename(filepath.Join(m.dir, "..next"), filepath.Join(m.dir, "..data")))
	if m.n > 1 {
		must(os.RemoveAll(filepath.Join(m.dir, fmt.Sprintf("..%d", m.n-1))))
	}
}

func TestFollowsFiles(t *testing.T) {
	const sources = "catalogs:\n- {id: a, type: yaml, properties: {yamlCatalogPath: models.yaml}}\n"
	m := &mounted{dir: t.TempDir()}
	m.set(t, map[string]string{"sources.yaml": sources, "models.yaml": "models:\n- name: one\n"})
	late := filepath.Join(t.TempDir(), "late")
	s := run(t, os.Getenv, filepath.Join(m.dir, "sources.yaml"), filepath.Join(late, "sources.yaml"))
	const models = modelsAPI + "/models"
	s.has(t, models, "one")

	m.set(t, map[string]string{"sources.yaml": sources, "models.yaml": "models:\n- name: one\n- name: two\n"})
	s.has(t, models, "one two")

	// What cannot be read keeps what was there before, file by file, and is told of.
	m.set(t, map[string]string{"sources.yaml": sources, "models.yaml": "models: [\n"})
	status := func() string {
		_, body := s.get(t, modelsAPI+"/sources")
		items, _ := json.Marshal(body["items"])
		return string(items)
	}
	until(t, "the state of the source", func() bool { return strings.Contains(status(), "partially-available") })
	s.has(t, models, "one two")
	m.set(t, map[string]string{"sources.yaml": "nonsense: true\n", "models.yaml": "models:\n- name: three\n"})
	s.has(t, models, "three")
	until(t, "the log", func() bool { return strings.Contains(s.said.String(), "nonsense") })
	m.set(t, map[string]string{"sources.yaml": strings.Replace(sources, "type", "enabled: no, type", 1), "models.yaml": "models:\n- name: three\n"})
	s.has(t, models, "")
}

func TestNotReadyWithoutFiles(t *testing.T) {
	s := newServer(t, filepath.Join(t.TempDir(), "sources.yaml"))
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody))
	if w.Code == http.StatusOK {
		t.Error("ready without any file")
	}
}

// played is a hub.
type played struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	answers  map[string]string
	tokens   map[string]bool
	refuse   int
}

func playHub(t *testing.T) *played {
	t.Helper()
	p := &played{tokens: map[string]bool{}, answers: map[string]string{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *played) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r.URL.RequestURI())
	p.tokens[r.Header.Get("Authorization")] = true
	answer, ok := p.answers[r.URL.RequestURI()]
	switch {
	case p.refuse != 0:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "you sent "+r.Header.Get("Authorization"), p.refuse)
	case !ok:
		http.Error(w, "you sent "+r.Header.Get("Authorization"), http.StatusNotFound)
	default:
		if r.URL.Path == "/api/models" && !r.URL.Query().Has("cursor") && r.URL.Query().Get("author") == "acme" {
			w.Header().Set("Link", `<`+p.URL+`/api/models?author=acme&limit=100&cursor=c2>; rel="next"`)
		}
		fmt.Fprint(w, answer)
	}
}

const secret = "hf_" + "averysecretone"

func TestFollowsHub(t *testing.T) {
	p := playHub(t)
	p.answers = map[string]string{
		"/api/models?author=acme&limit=100":           `[{"id": "acme/one"}, {"id": "acme/one-gguf"}, {"id": "other/spoofed"}]`,
		"/api/models?author=acme&cursor=c2&limit=100": `[{"id": "acme/two"}, {"id": "acme/broken"}]`,
		"/api/models/acme/one": `{"id": "acme/one", "author": "acme", "sha": "s1", "createdAt": "2024-01-02T03:04:05.000Z", "private": false,
			"gated": "auto", "tags": ["license:apache-2.0", "nlp"], "pipeline_tag": "text-generation", "library_name": "transformers",
			"siblings": [{"rfilename": "README.md"}], "config": {"architectures": ["A"], "model_type": "a"}, "cardData": {"language": ["en"]}}`,
		"/acme/one/raw/main/README.md": "# One",
		"/api/models/acme/two":         `{"id": "acme/two", "gated": false, "pipeline_tag": "fill-mask"}`,
		"/api/models/acme/broken":      `[]`,
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "sources.yaml")
	write := func(more string) {
		t.Helper()
		content := "catalogs:\n- {id: hub, type: hf, includedModels: ['*'], excludedModels: ['*-gguf'], properties: {url: '" + p.URL +
			"', allowedOrganization: acme, apiKeyEnvVar: MY_TOKEN" + more + "}}\n"
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	env := map[string]string{"MY_TOKEN": secret, "HOME": "something else"}
	s := run(t, func(name string) string { return env[name] }, path)
	s.has(t, modelsAPI+"/models", "acme/one acme/two")
	_, model := s.get(t, modelsAPI+"/sources/hub/models/acme/one")
	properties, _ := model["customProperties"].(map[string]any)
	delete(properties, "last_synced")
	shownAs(t, model, `{"id": "#", "name": "acme/one", "externalId": "acme/one", "source_id": "hub", "provider": "acme", "language": ["en"],
		"tasks": ["text-generation"], "license": "Apache License 2.0", "libraryName": "transformers", "readme": "# One", "createTimeSinceEpoch": "1704164645000",
		"customProperties": {
			"model_type": {"metadataType": "MetadataStringValue", "string_value": "generative"},
			"hf_gated": {"metadataType": "MetadataStringValue", "string_value": "auto"},
			"hf_private": {"metadataType": "MetadataStringValue", "string_value": "false"},
			"hf_tags": {"metadataType": "MetadataStringValue", "string_value": "[\"nlp\"]"},
			"hf_architectures": {"metadataType": "MetadataStringValue", "string_value": "[\"A\"]"},
			"hf_model_type": {"metadataType": "MetadataStringValue", "string_value": "a"}}}`)
	if got := names(s.get(t, modelsAPI+"/models?filterQuery=model_type='predictive' AND artifacts.uri='hf://acme/two'")); got != "acme/two" {
		t.Errorf("by type and place: %q", got)
	}
	_, body := s.get(t, modelsAPI+"/sources")
	sources := fmt.Sprint(body)
	if !strings.Contains(sources, "partially-available") || !strings.Contains(sources, "acme/broken") {
		t.Errorf("the broken model is not told of: %s", sources)
	}
	if got := names(s.get(t, modelsAPI+"/models?q=spoofed")); got != "" {
		t.Error("a model of another organization is shown")
	}
	code, preview := s.post(t, "", "type: hf\nincludedModels: [acme/*]\nproperties: {url: '"+p.URL+"', apiKeyEnvVar: HOME}", "")
	if code != http.StatusOK || len(names(code, preview)) == 0 {
		t.Errorf("preview: %d %v", code, preview)
	}

	p.mu.Lock()
	for token := range p.tokens {
		if token != "Bearer "+secret && token != "" {
			t.Errorf("a secret of somebody else was sent: %q", token)
		}
	}
	p.refuse = http.StatusTooManyRequests
	p.mu.Unlock()
	write(", maxModels: 1") // asked anew, in vain
	until(t, "the refusal", func() bool {
		_, body := s.get(t, modelsAPI+"/sources")
		return strings.Contains(fmt.Sprint(body), "429")
	})
	s.has(t, modelsAPI+"/models", "acme/one acme/two")
	_, body = s.get(t, modelsAPI+"/sources")
	for where, text := range map[string]string{"the log": s.said.String(), "the sources": fmt.Sprint(body), "the preview": fmt.Sprint(preview)} {
		if strings.Contains(text, secret) {
			t.Errorf("the token is in %s", where)
		}
	}
}

func TestPause(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: 24 * time.Hour, 1: time.Minute, 4: 8 * time.Minute, 50: 1024 * time.Minute} {
		if got := pause(24*time.Hour, failures); got != want {
			t.Errorf("%d failures: %s, not %s", failures, got, want)
		}
	}
}

// TestExample: what people start from is taken as it is.
func TestExample(t *testing.T) {
	data, err := os.ReadFile("../../../examples/modelregistry/catalog-source.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct{ Data map[string]string }
	if err := yaml.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	m := &mounted{dir: t.TempDir()}
	m.set(t, object.Data)
	s := newServer(t, filepath.Join(m.dir, "sources.yaml"))
	if got := names(s.get(t, modelsAPI+"/models")) + ", " + names(s.get(t, serversAPI)); got != "team/flowers, metrics" {
		t.Errorf("the example has %q", got)
	}
	for _, state := range s.current.Load().sources {
		if state.Problem != "" {
			t.Errorf("source %s: %s", state.ID, state.Problem)
		}
	}
}
