// SPDX-License-Identifier: Apache-2.0

// Package upstream runs the known model registry and ours on one database: what clients of one are told, clients of the
// other are told as well, and each reads and changes what the other has written.
package upstream

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/modelregistry/server"
	"github.com/modelplane/modelplane/internal/modelregistry/server/store"
	"github.com/modelplane/modelplane/internal/testkit/mariadb"
	"github.com/modelplane/modelplane/internal/testkit/upstream"
)

// custom are custom properties of every type that both know.
const custom = `"customProperties":{
	"whole":{"metadataType":"MetadataIntValue","int_value":"-42"},
	"fraction":{"metadataType":"MetadataDoubleValue","double_value":0.125},
	"truth":{"metadataType":"MetadataBoolValue","bool_value":true},
	"text":{"metadataType":"MetadataStringValue","string_value":"a 'text' with \"quotes\", 100% & a_b"},
	"empty":{"metadataType":"MetadataStringValue","string_value":""},
	"object":{"metadataType":"MetadataStructValue","struct_value":"eyJhIjpbMSwiYiIsdHJ1ZSxudWxsXX0="}}`

// steps are what a client does, one after the other. {who} is a word for the server, and {x} the id of what step x made.
var steps = []struct {
	name, method, path, body string
}{
	{"model", "POST", "/registered_models", `{"name":"{who} model","externalId":"{who}-m","description":"flowers","owner":"ada","state":"LIVE","readme":"# Iris","maturity":"beta",
		"language":["en","de"],"tasks":["classification"],"provider":"us","logo":"data:x","license":"apache-2.0","licenseLink":"https://x","libraryName":"sklearn",` + custom + `}`},
	{"plain model", "POST", "/registered_models", `{"name":"{who} plain"}`},
	{"version", "POST", "/registered_models/{model}/versions", `{"name":"v1","externalId":"{who}-v","registeredModelId":"{model}","description":"first","author":"ada","state":"LIVE",` + custom + `}`},
	{"second version", "POST", "/model_versions", `{"name":"v2","registeredModelId":"{model}"}`},
	{"artifact", "POST", "/model_versions/{version}/artifacts", `{"artifactType":"model-artifact","name":"onnx","externalId":"{who}-a","description":"weights","uri":"s3://b/iris","state":"LIVE",
		"modelFormatName":"onnx","modelFormatVersion":"1","storageKey":"k","storagePath":"p","serviceAccountName":"sa","modelSourceKind":"dsp","modelSourceClass":"run",
		"modelSourceGroup":"g","modelSourceId":"1","modelSourceName":"n",` + custom + `}`},
	{"document", "POST", "/model_versions/{version}/artifacts", `{"artifactType":"doc-artifact","name":"readme","externalId":"{who}-d","description":"text","uri":"https://x","state":"PENDING",` + custom + `}`},
	{"nameless artifact", "POST", "/model_versions/{version}/artifacts", `{"artifactType":"model-artifact","uri":"s3://b/nameless"}`},
	{"free artifact", "POST", "/model_artifacts", `{"name":"{who} free","uri":"s3://b/free","modelFormatName":"onnx","state":"UNKNOWN"}`},
	{"free document", "POST", "/artifacts", `{"artifactType":"doc-artifact","name":"{who} free","uri":"https://free"}`},
	{"environment", "POST", "/serving_environments", `{"name":"{who} env","externalId":"{who}-e","description":"namespace",` + custom + `}`},
	{"service", "POST", "/serving_environments/{environment}/inference_services", `{"name":"isvc","externalId":"{who}-i","description":"serves","registeredModelId":"{model}","servingEnvironmentId":"{environment}",
		"modelVersionId":"{version}","runtime":"mlserver","desiredState":"DEPLOYED",` + custom + `}`},
	{"second service", "POST", "/inference_services", `{"name":"newest","registeredModelId":"{model}","servingEnvironmentId":"{environment}"}`},
	{"serve", "POST", "/inference_services/{service}/serves", `{"name":"serve","externalId":"{who}-s","description":"one","modelVersionId":"{version}","lastKnownState":"RUNNING",` + custom + `}`},

	{"get model", "GET", "/registered_models/{model}", ""},
	{"get plain model", "GET", "/registered_models/{plain model}", ""},
	{"get version", "GET", "/model_versions/{version}", ""},
	{"get artifact", "GET", "/artifacts/{artifact}", ""},
	{"get model artifact", "GET", "/model_artifacts/{artifact}", ""},
	{"get document", "GET", "/artifacts/{document}", ""},
	{"get free artifact", "GET", "/model_artifacts/{free artifact}", ""},
	{"get environment", "GET", "/serving_environments/{environment}", ""},
	{"get service", "GET", "/inference_services/{service}", ""},
	{"get second service", "GET", "/inference_services/{second service}", ""},
	{"model of service", "GET", "/inference_services/{service}/model", ""},
	{"version of service", "GET", "/inference_services/{service}/version", ""},
	{"version of second service", "GET", "/inference_services/{second service}/version", ""},

	{"find model", "GET", "/registered_model?name={who}+model", ""},
	{"find model by external id", "GET", "/registered_model?externalId={who}-m", ""},
	{"find version", "GET", "/model_version?name=v1&parentResourceId={model}", ""},
	{"find version by external id", "GET", "/model_version?externalId={who}-v", ""},
	{"find artifact", "GET", "/artifact?name=readme&parentResourceId={version}", ""},
	{"find model artifact", "GET", "/model_artifact?name=onnx&parentResourceId={version}", ""},
	{"find model artifact by external id", "GET", "/model_artifact?externalId={who}-a", ""},
	{"find environment", "GET", "/serving_environment?name={who}+env", ""},
	{"find service", "GET", "/inference_service?name=isvc&parentResourceId={environment}", ""},

	{"versions", "GET", "/registered_models/{model}/versions?orderBy=ID&sortOrder=ASC", ""},
	{"versions in some order", "GET", "/registered_models/{model}/versions?orderBy=ID", ""},
	{"newest version", "GET", "/registered_models/{model}/versions?orderBy=ID&sortOrder=DESC&pageSize=1", ""},
	{"artifacts", "GET", "/model_versions/{version}/artifacts?orderBy=ID&sortOrder=ASC", ""},
	{"documents", "GET", "/model_versions/{version}/artifacts?orderBy=ID&sortOrder=ASC&artifactType=doc-artifact", ""},
	{"services", "GET", "/serving_environments/{environment}/inference_services?orderBy=ID&sortOrder=ASC", ""},
	{"serves", "GET", "/inference_services/{service}/serves?orderBy=ID&sortOrder=ASC", ""},

	{"change model", "PATCH", "/registered_models/{model}", `{"description":"petals","owner":"eve","state":"ARCHIVED","language":["fr"],"customProperties":{"only":{"metadataType":"MetadataStringValue","string_value":"this"}}}`},
	{"change model again", "PATCH", "/registered_models/{model}", `{"owner":"ada"}`},
	{"change version", "PATCH", "/model_versions/{version}", `{"description":"other","author":"eve","state":"ARCHIVED"}`},
	{"change artifact", "PATCH", "/model_artifacts/{artifact}", `{"uri":"s3://b/new","state":"DELETED","modelFormatVersion":"2"}`},
	{"change document", "PATCH", "/artifacts/{document}", `{"artifactType":"doc-artifact","uri":"https://y"}`},
	{"change environment", "PATCH", "/serving_environments/{environment}", `{"description":"other"}`},
	{"change service", "PATCH", "/inference_services/{service}", `{"desiredState":"UNDEPLOYED","runtime":"triton","modelVersionId":"{second version}"}`},

	{"same name", "POST", "/registered_models", `{"name":"{who} model"}`},
	{"same version", "POST", "/registered_models/{model}/versions", `{"name":"v1","registeredModelId":"{model}"}`},
	{"no name", "POST", "/registered_models", `{}`},
	{"unknown field", "POST", "/registered_models", `{"name":"x","colour":"red"}`},
	{"wrong state", "POST", "/registered_models", `{"name":"x","state":"GONE"}`},
	{"no JSON", "POST", "/registered_models", `{"name":`},
	{"no such model", "GET", "/registered_models/999999", ""},
	{"no id", "GET", "/registered_models/abc", ""},
	{"find nothing", "GET", "/registered_model?name=nobody", ""},
	{"find without a name", "GET", "/registered_model", ""},
	{"wrong order", "GET", "/registered_models?orderBy=COLOUR", ""},
	{"version of no model", "POST", "/model_versions", `{"name":"{who} orphan","registeredModelId":"999999"}`},
	{"serve of no version", "POST", "/inference_services/{service}/serves", `{"name":"none","modelVersionId":"999999"}`},
}

// known are the differences, by step and what is different in the answer. Each is a fact of this version of the known
// server that ours does not share; the test fails when one is no longer there.
var known = map[string]string{
	"versions in some order: items": "an order without a direction is descending",
	"documents: items":              "artifactType is not looked at",
	"documents: size":               "artifactType is not looked at",

	"change model: tasks":          "a change loses lists that it does not name",
	"change model again: tasks":    "a change loses lists that it does not name",
	"change model again: language": "a change loses lists that it does not name",
	"change model again: state":    "a change that does not name the state sets it to LIVE",

	"version of no model: status": "404, as if the path were wrong; later versions accept it",
	"serve of no version: status": "404, as if the path were wrong",

	"same name: code": noCode, "same version: code": noCode, "no name: code": noCode, "unknown field: code": noCode, "wrong state: code": noCode, "no JSON: code": noCode,
	"no such model: code": noCode, "no id: code": noCode, "find nothing: code": noCode, "find without a name: code": noCode, "wrong order: code": noCode,
}

const noCode = "the body of an error has an empty code; later versions have the text of the status"

// side is one of the two servers.
type side struct {
	*testing.T
	who, url string
	ids      map[string]string
}

type answer struct {
	status int
	body   map[string]any
}

func (s *side) call(method, path, body string) answer {
	s.Helper()
	for name, id := range s.ids {
		path, body = strings.ReplaceAll(path, "{"+name+"}", id), strings.ReplaceAll(body, "{"+name+"}", id)
	}
	path, body = strings.ReplaceAll(path, "{who}", s.who), strings.ReplaceAll(body, "{who}", s.who)
	req, err := http.NewRequestWithContext(s.Context(), method, s.url+server.Base+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		s.Fatal(err)
	}
	out := answer{status: got.StatusCode}
	if err := json.Unmarshal(text, &out.body); err != nil {
		s.Fatalf("%s: %s %s answers what is no JSON: %s", s.who, method, path, text)
	}
	return out
}

func TestTwoServersOnOneDatabase(t *testing.T) {
	parts := upstream.Find(t)
	db := mariadb.Start(t)
	db.Database(t, "registry")
	theirs := &side{T: t, who: "theirs", ids: map[string]string{}, url: parts.Start(t, db, db.Host, db.Port, "registry").URL}
	before := play(theirs) // on its own: ours opens what it has written
	ours := &side{T: t, who: "ours", ids: map[string]string{}, url: open(t, db.DSN("registry"))}
	after := play(ours)
	compare(t, before, after)
	eachReadsBoth(t, theirs, ours)

	// The tables of its own migrations, which its later versions use, serve as well.
	db.Database(t, "migrated")
	parts.Migrate(t, db, "migrated")
	migrated := &side{T: t, who: "ours", ids: map[string]string{}, url: open(t, db.DSN("migrated"))}
	for name, got := range play(migrated) {
		want := after[name]
		delete(got.body, "message") // which names ids
		delete(want.body, "message")
		if diff := cmp.Diff(neutral(want.body), neutral(got.body)); diff != "" || got.status != want.status {
			t.Errorf("%s answers %d, not %d, in tables of its migrations: %s", name, got.status, want.status, diff)
		}
	}
}

// open starts our server on a database.
func open(t *testing.T, dsn string) string {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Type: "mysql", DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	api := server.NewAPI(slog.New(slog.NewTextHandler(t.Output(), nil)))
	api.Use(s)
	listening := httptest.NewServer(api)
	t.Cleanup(listening.Close)
	return listening.URL
}

// play does all steps, and remembers the ids of what they make.
func play(s *side) map[string]answer {
	out := map[string]answer{}
	for _, step := range steps {
		got := s.call(step.method, step.path, step.body)
		if id, ok := got.body["id"].(string); ok && step.method == http.MethodPost {
			s.ids[step.name] = id
		}
		out[step.name] = got
	}
	return out
}

// compare tells where the two answered differently, apart from what is known.
func compare(t *testing.T, theirs, ours map[string]answer) {
	t.Helper()
	found := map[string]string{}
	for _, step := range steps {
		a, b := theirs[step.name], ours[step.name]
		if a.status != b.status {
			found[step.name+": status"] = fmt.Sprintf("theirs is %d, ours %d: %v, %v", a.status, b.status, a.body, b.body)
			continue
		}
		if a.status >= http.StatusBadRequest {
			delete(a.body, "message") // in its own words
			delete(b.body, "message")
		}
		x, y := neutral(a.body), neutral(b.body)
		for field := range maps.Keys(union(x, y)) {
			if diff := cmp.Diff(x[field], y[field]); diff != "" {
				found[step.name+": "+field] = "theirs -, ours +:\n" + diff
			}
		}
	}
	for _, difference := range slices.Sorted(maps.Keys(union(found, known))) {
		switch _, expected := known[difference]; {
		case !expected:
			t.Errorf("%s is different: %s", difference, found[difference])
		case found[difference] == "":
			t.Errorf("%s is not different any more (%s)", difference, known[difference])
		}
	}
}

func union[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

var (
	own   = regexp.MustCompile(`\b(theirs|ours)\b`)
	times = regexp.MustCompile(`^[0-9]{13}$`)
	uuid  = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// neutral takes out of an answer what must be different: ids, times, and the words for the servers.
func neutral(body map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range body {
		switch v := value.(type) {
		case map[string]any:
			value = neutral(v)
		case []any:
			list := []any{}
			for _, item := range v {
				if object, ok := item.(map[string]any); ok {
					item = neutral(object)
				}
				list = append(list, item)
			}
			value = list
		case string:
			value = own.ReplaceAllString(v, "who")
			switch {
			case name == "id", strings.HasSuffix(name, "Id") && name != "externalId" && name != "modelSourceId":
				value = "an id"
			case name == "nextPageToken" && v != "":
				value = "a token"
			case times.MatchString(v):
				value = "a time"
			case uuid.MatchString(v):
				value = "a UUID"
			}
		}
		out[name] = value
	}
	return out
}

// objects are all that were made, with where each is read and a change to it.
var objects = map[string]struct{ path, change string }{
	"model":             {"/registered_models/", `{"description":"%s","customProperties":{"by":{"metadataType":"MetadataStringValue","string_value":"%s"}}}`},
	"plain model":       {"/registered_models/", `{"description":"%s","owner":"%s"}`},
	"version":           {"/model_versions/", `{"description":"%s","author":"%s"}`},
	"second version":    {"/model_versions/", `{"description":"%s","author":"%s"}`},
	"artifact":          {"/model_artifacts/", `{"description":"%s","storageKey":"%s"}`},
	"document":          {"/artifacts/", `{"artifactType":"doc-artifact","description":"%s","uri":"https://%s"}`},
	"nameless artifact": {"/model_artifacts/", `{"description":"%s","storageKey":"%s"}`},
	"free artifact":     {"/model_artifacts/", `{"description":"%s","storageKey":"%s"}`},
	"free document":     {"/artifacts/", `{"artifactType":"doc-artifact","description":"%s","uri":"https://%s"}`},
	"environment":       {"/serving_environments/", `{"description":"%s","customProperties":{"by":{"metadataType":"MetadataStringValue","string_value":"%s"}}}`},
	"service":           {"/inference_services/", `{"description":"%s","runtime":"%s"}`},
	"second service":    {"/inference_services/", `{"description":"%s","runtime":"%s"}`},
}

// eachReadsBoth: every object, whoever has made it, is the same for both servers; also after either has changed it.
func eachReadsBoth(t *testing.T, theirs, ours *side) {
	t.Helper()
	for _, made := range []*side{theirs, ours} {
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			path := objects[name].path + made.ids[name]
			same(t, theirs, ours, path, made.who+" "+name)
			for _, by := range []*side{ours, theirs} {
				word := "changed by " + by.who
				changed := by.call(http.MethodPatch, path, fmt.Sprintf(objects[name].change, word, by.who))
				if changed.status != http.StatusOK || changed.body["description"] != word {
					t.Errorf("%s of %s, %s: %v", name, made.who, word, changed)
				}
				same(t, theirs, ours, path, made.who+" "+name+" "+word)
			}
		}
	}
	for _, list := range []string{
		"/registered_models", "/model_versions", "/model_artifacts", "/artifacts", "/serving_environments", "/inference_services",
		"/registered_models/" + theirs.ids["model"] + "/versions", "/registered_models/" + ours.ids["model"] + "/versions",
		"/model_versions/" + theirs.ids["version"] + "/artifacts", "/model_versions/" + ours.ids["version"] + "/artifacts",
		"/serving_environments/" + theirs.ids["environment"] + "/inference_services", "/serving_environments/" + ours.ids["environment"] + "/inference_services",
		"/inference_services/" + theirs.ids["service"] + "/serves", "/inference_services/" + ours.ids["service"] + "/serves",
	} {
		same(t, theirs, ours, list+"?orderBy=ID&sortOrder=ASC&pageSize=100", "list "+list)
	}
}

func same(t *testing.T, theirs, ours *side, path, what string) {
	t.Helper()
	a, b := theirs.call(http.MethodGet, path, ""), ours.call(http.MethodGet, path, "")
	if a.status != http.StatusOK || b.status != http.StatusOK {
		t.Errorf("%s: theirs answers %d, ours %d", what, a.status, b.status)
	}
	if diff := cmp.Diff(a.body, b.body); diff != "" {
		t.Errorf("%s (theirs -, ours +):\n%s", what, diff)
	}
}
