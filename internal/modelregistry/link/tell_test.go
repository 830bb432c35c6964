// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelplane/modelplane/internal/engine"
)

const uid = "/0f0f0f0f-0000-4000-8000-000000000001"

func call(t *testing.T, l *Link, name string, e Entry) (Told, error) {
	t.Helper()
	told, err := l.execute(t.Context(), types.NamespacedName{}, engine.Call{Name: name, Request: e})
	out, _ := told.(Told)
	return out, err
}

// TestTelling goes with one service through its life, in a registry that fails on the way.
func TestTelling(t *testing.T) {
	reg := newFakeRegistry()
	server := httptest.NewServer(reg)
	t.Cleanup(server.Close)
	link := New()
	e := Entry{Registry: Registry{URL: server.URL, Name: "team/registry"}, Environment: "team", Name: "iris" + uid, Model: "5", Version: "6", Runtime: "sk"}
	only := func(method, path string, status int) func(*http.Request) int {
		return func(r *http.Request) int {
			if r.Method == method && strings.HasSuffix(r.URL.Path, path) {
				return status
			}
			return 0
		}
	}
	wrong := func(name, words string) {
		t.Helper()
		_, before := reg.service()
		if _, err := call(t, link, name, e); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("error = %v, want %q", err, words)
		}
		if _, now := reg.service(); now != before {
			t.Errorf("%d services, and %d before", now, before)
		}
	}
	right := func(want map[string]any) {
		t.Helper()
		told, err := call(t, link, callTell, e)
		have, n := reg.service()
		if err != nil || n != 1 || told.ID != have["id"] {
			t.Fatalf("told %v, %v, and there are %d services", told, err, n)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("the registry has (-want +got):\n%s", diff)
		}
	}

	// Nothing is made because something was not found out.
	for _, path := range []string{"/serving_environment", "/inference_service"} {
		for _, status := range []int{500, 502, 503, 504, 429} {
			reg.spoil(only("GET", path, status), nil)
			wrong(callTell, "it ")
		}
	}
	reg.spoil(only("GET", "/serving_environment", 307), nil)
	wrong(callTell, "it redirects (307), which is not followed")
	reg.spoil(only("GET", "/serving_environment", 403), nil)
	wrong(callTell, "access is denied (403). Give the manager's service account a role")
	reg.spoil(only("GET", "/serving_environment", 507), nil)
	wrong(callTell, "its database has no room left (507). Give its volume more")

	// The answer of what was made is lost, and it is made once all the same.
	reg.environments = nil
	reg.spoil(nil, only("POST", "/serving_environments", 503))
	wrong(callTell, "it fails (503). Look at its log.")
	reg.spoil(nil, only("POST", "/inference_services", 504))
	if _, err := call(t, link, callTell, e); statusOf(err) != 504 {
		t.Errorf("error = %v", err)
	}
	reg.spoil(nil, nil)
	want := map[string]any{"id": "41", "name": e.Name, "registeredModelId": "5", "servingEnvironmentId": "41", "modelVersionId": "6", "runtime": "sk", "desiredState": "DEPLOYED"}
	right(want)

	// What others noted stays, and what is right is not written.
	reg.services[0]["customProperties"] = map[string]any{"team": map[string]any{"metadataType": "MetadataIntValue", "int_value": "3"}}
	e.URL, e.Version = "http://iris.team", "7"
	want["modelVersionId"] = "7"
	want["customProperties"] = map[string]any{"team": map[string]any{"metadataType": "MetadataIntValue", "int_value": "3"},
		"url": map[string]any{"metadataType": "MetadataStringValue", "string_value": "http://iris.team"}}
	right(want)
	before := reg.count()
	e.ID = "41"
	right(want)
	if now := reg.count(); now["PATCH"] != before["PATCH"] || now["POST"] != before["POST"] || now["GET"] != before["GET"]+1 {
		t.Errorf("calls %v, and %v before", now, before)
	}
	e.URL = ""
	delete(want["customProperties"].(map[string]any), "url")
	right(want)

	e.Model = "8"
	wrong(callTell, "inference service 41 there belongs to the registered model 5, and that cannot be changed")
	e.Model = "5"

	// The end, of what the registry knows by its name, by its id, and not at all.
	e.ID = "99"
	if _, err := call(t, link, callEnd, e); err != nil {
		t.Error(err)
	}
	if have, _ := reg.service(); have["desiredState"] != "UNDEPLOYED" {
		t.Errorf("the registry has %v", have)
	}
	reg.services[0]["desiredState"] = "DEPLOYED"
	right(want) // made anew, as a person would say
	e.ID, e.Model = "41", ""
	if _, err := call(t, link, callEnd, e); err != nil || reg.services[0]["desiredState"] != "UNDEPLOYED" {
		t.Errorf("%v, the registry has %v", err, reg.services[0])
	}
	e.ID, e.Name = "99", "other"+uid
	if _, err := call(t, link, callEnd, e); err != nil {
		t.Error(err)
	}
	reg.spoil(only("GET", "99", 503), nil)
	wrong(callEnd, "it fails (503)")
	reg.spoil(nil, nil)
	wrong(callTell, "it does not have what the labels name (404)")
}

// TestCopiedLabels: the id of another service's entry is not taken over with its labels, but that of an entry that people
// made is.
func TestCopiedLabels(t *testing.T) {
	reg := newFakeRegistry()
	server := httptest.NewServer(reg)
	t.Cleanup(server.Close)
	other := map[string]any{"id": "7", "name": "other" + uid, "registeredModelId": "5", "servingEnvironmentId": "1", "desiredState": "DEPLOYED"}
	mine := map[string]any{"id": "8", "name": "by hand", "registeredModelId": "5", "servingEnvironmentId": "1", "desiredState": "DEPLOYED"}
	reg.services = []map[string]any{other, mine}
	e := Entry{Registry: Registry{URL: server.URL}, Environment: "team", Name: "iris" + uid, Model: "5", ID: "7"}
	if told, err := call(t, New(), callTell, e); err != nil || told.ID != "43" {
		t.Errorf("told %v, %v", told, err)
	}
	e.ID = "8"
	if told, err := call(t, New(), callTell, e); err != nil || told.ID != "8" {
		t.Errorf("told %v, %v", told, err)
	}
}

// TestWhoSeesTheToken: registries of the platform, over connections that are proven to be theirs, and it is read anew.
func TestWhoSeesTheToken(t *testing.T) {
	reg := newFakeRegistry()
	secure, open := httptest.NewUnstartedServer(reg), httptest.NewServer(reg)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	secure.StartTLS()
	t.Cleanup(secure.Close)
	t.Cleanup(open.Close)
	dir := t.TempDir()
	put := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token, ca := put("token", "first\n"), filepath.Join(dir, "ca.crt")
	link := New().WithSettings(Settings{TokenFile: token, CAFiles: []string{ca, filepath.Join(dir, "nothing")}})
	entry := func(url string, trusted bool) Entry {
		return Entry{Registry: Registry{URL: url, Trusted: trusted}, Environment: "team", Name: "iris" + uid, Model: "5"}
	}
	shown := func() string {
		reg.mu.Lock()
		defer reg.mu.Unlock()
		var out []string
		for token := range reg.tokens {
			out = append(out, token)
		}
		reg.tokens = map[string]bool{}
		return strings.Join(out, ",")
	}
	_, err := call(t, link, callTell, entry(secure.URL, true))
	var f *failure
	if !errors.As(err, &f) || !strings.Contains(f.message, "its certificate is not trusted") {
		t.Errorf("error = %v", err)
	}
	put("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})))
	for _, c := range []struct {
		name    string
		url     string
		trusted bool
		token   string
		want    string
	}{
		{name: "trusted", url: secure.URL, trusted: true, token: "first", want: "first"},
		{name: "another token", url: secure.URL, trusted: true, token: "second", want: "second"},
		{name: "not trusted", url: secure.URL, token: "second"},
		{name: "open", url: open.URL, trusted: true, token: "second"},
	} {
		put("token", c.token)
		if _, err := call(t, link, callTell, entry(c.url, c.trusted)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := shown(); got != c.want {
			t.Errorf("%s: the registry was shown %q, want %q", c.name, got, c.want)
		}
	}
	own := entry(secure.URL, true)
	own.Registry.Roots = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	bare := New().WithSettings(Settings{TokenFile: token})
	if _, err := call(t, bare, callTell, own); err != nil || shown() != "second" {
		t.Errorf("error = %v, or a registry whose certificate we made did not see the token", err)
	}
	own.Registry.Roots = ""
	if _, err := call(t, bare, callTell, own); err == nil {
		t.Error("a certificate counts for other registries")
	}
	careless := New().WithSettings(Settings{TokenFile: token, SkipVerify: true})
	if _, err := call(t, careless, callTell, entry(secure.URL, true)); err != nil || shown() != "" {
		t.Errorf("error = %v, or a registry that anybody may be saw the token", err)
	}
	put("token", "two words")
	if _, err := call(t, link, callTell, entry(secure.URL, true)); err == nil || strings.Contains(err.Error(), "words") {
		t.Errorf("error = %v", err)
	}
}
