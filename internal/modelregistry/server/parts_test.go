// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// models: what a registered model can say, and how it changes.
func models(r *registry) {
	made := r.call("POST", "/registered_models", `{"name":"iris","externalId":"ext-iris","description":"flowers","owner":"ada","readme":"# Iris",
		"language":["en","de"],"tasks":["classification"],"provider":"us","logo":"x","license":"apache-2.0","licenseLink":"https://x","libraryName":"sklearn","maturity":"beta",
		"customProperties":{"n":{"metadataType":"MetadataIntValue","int_value":"4611686018427387904"},"d":{"metadataType":"MetadataDoubleValue","double_value":0.5},
		"b":{"metadataType":"MetadataBoolValue","bool_value":true},"s":{"metadataType":"MetadataStringValue","string_value":"x"},
		"o":{"metadataType":"MetadataStructValue","struct_value":"eyJhIjpbMSwiYiJdfQ=="}}}`, http.StatusCreated)
	want := map[string]any{
		"name": "iris", "externalId": "ext-iris", "description": "flowers", "owner": "ada", "readme": "# Iris", "state": "LIVE",
		"language": []string{"en", "de"}, "tasks": []string{"classification"}, "provider": "us", "logo": "x", "license": "apache-2.0",
		"licenseLink": "https://x", "libraryName": "sklearn", "maturity": "beta",
		"customProperties": map[string]any{
			"n": map[string]any{"metadataType": "MetadataIntValue", "int_value": "4611686018427387904"},
			"d": map[string]any{"metadataType": "MetadataDoubleValue", "double_value": 0.5},
			"b": map[string]any{"metadataType": "MetadataBoolValue", "bool_value": true},
			"s": map[string]any{"metadataType": "MetadataStringValue", "string_value": "x"},
			"o": map[string]any{"metadataType": "MetadataStructValue", "struct_value": "eyJhIjpbMSwiYiJdfQ=="},
		},
	}
	r.has(made, want)
	path := "/registered_models/" + made.id()
	r.has(r.call("GET", path, "", http.StatusOK), want)
	r.has(r.call("GET", "/registered_model?name=iris", "", http.StatusOK), map[string]any{"id": made.id()})
	r.has(r.call("GET", "/registered_model?externalId=ext-iris", "", http.StatusOK), map[string]any{"id": made.id()})

	changed := r.call("PATCH", path, `{"state":"ARCHIVED","owner":"","customProperties":{"only":{"metadataType":"MetadataStringValue","string_value":"this"}}}`, http.StatusOK)
	want["state"], want["owner"] = "ARCHIVED", ""
	want["customProperties"] = map[string]any{"only": map[string]any{"metadataType": "MetadataStringValue", "string_value": "this"}}
	r.has(changed, want)
	r.has(r.call("PATCH", path, `{"description":"petals"}`, http.StatusOK), map[string]any{"description": "petals", "customProperties": want["customProperties"], "state": "ARCHIVED"})
	before, after := changed["createTimeSinceEpoch"], changed["lastUpdateTimeSinceEpoch"]
	if before != made["createTimeSinceEpoch"] || after == made["lastUpdateTimeSinceEpoch"] {
		r.Errorf("times are %v and %v; they were %v", before, after, made["createTimeSinceEpoch"])
	}
	// What was read can be sent back.
	whole, err := json.Marshal(r.call("GET", path, "", http.StatusOK))
	if err != nil {
		r.Fatal(err)
	}
	r.has(r.call("PATCH", path, string(whole), http.StatusOK), map[string]any{"description": "petals", "name": "iris"})
}

func versionsAndArtifacts(r *registry) {
	m := r.call("POST", "/registered_models", `{"name":"va"}`, http.StatusCreated)
	v1 := r.call("POST", "/model_versions", `{"name":"v1","registeredModelId":"`+m.id()+`","author":"ada"}`, http.StatusCreated)
	below := "/registered_models/" + m.id() + "/versions"
	v2 := r.call("POST", below, `{"name":"v2"}`, http.StatusCreated)
	r.has(v2, map[string]any{"registeredModelId": m.id(), "state": "LIVE", "name": "v2"})
	// With an id it is the version that is meant, and changes.
	r.has(r.call("POST", below, `{"id":"`+v2.id()+`","author":"eve"}`, http.StatusOK), map[string]any{"id": v2.id(), "author": "eve", "name": "v2"})
	r.has(r.call("GET", "/model_version?name=v1&parentResourceId="+m.id(), "", http.StatusOK), map[string]any{"id": v1.id(), "author": "ada"})
	if got := r.names(below + "?orderBy=CREATE_TIME&sortOrder=DESC"); got != "v2 v1" {
		r.Errorf("versions are %q", got)
	}
	if got := r.names(below + "?name=v1"); got != "v1" {
		r.Errorf("versions called v1 are %q", got)
	}

	artifacts := "/model_versions/" + v1.id() + "/artifacts"
	a := r.call("POST", artifacts, `{"artifactType":"model-artifact","name":"onnx","uri":"s3://b/iris","modelFormatName":"onnx","modelFormatVersion":"1","storageKey":"k",
		"storagePath":"p","serviceAccountName":"sa","modelSourceKind":"dsp","modelSourceClass":"run","modelSourceGroup":"g","modelSourceId":"1","modelSourceName":"n","state":"LIVE"}`, http.StatusCreated)
	r.has(a, map[string]any{"artifactType": "model-artifact", "uri": "s3://b/iris", "state": "LIVE", "modelFormatName": "onnx", "modelSourceName": "n", "storagePath": "p"})
	doc := r.call("POST", artifacts, `{"artifactType":"doc-artifact","name":"readme","uri":"https://x"}`, http.StatusCreated)
	r.call("POST", artifacts, `{"artifactType":"dataset-artifact","name":"data","digest":"sha","sourceType":"s3","source":"x","schema":"{}","profile":"{}"}`, http.StatusCreated)
	if got := r.names(artifacts); got != "onnx readme data" {
		r.Errorf("artifacts are %q", got)
	}
	if got := r.names(artifacts + "?artifactType=doc-artifact"); got != "readme" {
		r.Errorf("documents are %q", got)
	}
	r.has(r.call("GET", "/model_artifact?name=onnx&parentResourceId="+v1.id(), "", http.StatusOK), map[string]any{"id": a.id()})
	r.has(r.call("GET", "/artifact?name=readme&parentResourceId="+v1.id(), "", http.StatusOK), map[string]any{"id": doc.id(), "artifactType": "doc-artifact"})
	r.has(r.call("PATCH", "/artifacts/"+a.id(), `{"artifactType":"model-artifact","uri":"s3://b/new"}`, http.StatusOK), map[string]any{"uri": "s3://b/new", "storageKey": "k", "state": "LIVE"})
	r.has(r.call("PATCH", "/model_artifacts/"+a.id(), `{"state":"DELETED"}`, http.StatusOK), map[string]any{"state": "DELETED", "uri": "s3://b/new"})
	r.call("GET", "/model_artifacts/"+doc.id(), "", http.StatusNotFound)
	r.call("PATCH", "/artifacts/"+a.id(), `{"artifactType":"doc-artifact"}`, http.StatusBadRequest)

	// One that belongs to nobody can belong to a version later, and to another as well.
	free := r.call("POST", "/model_artifacts", `{"name":"free","uri":"x","externalId":"free-1"}`, http.StatusCreated)
	r.has(r.call("GET", "/artifact?externalId=free-1", "", http.StatusOK), map[string]any{"name": "free"})
	r.call("POST", "/model_versions/"+v2.id()+"/artifacts", `{"id":"`+free.id()+`","artifactType":"model-artifact"}`, http.StatusOK)
	if got := r.names("/model_versions/" + v2.id() + "/artifacts?name=free"); got != "free" {
		r.Errorf("artifacts of v2 are %q", got)
	}
	// Two that belong to nobody may have the same name.
	r.call("POST", "/artifacts", `{"artifactType":"model-artifact","name":"free","uri":"y"}`, http.StatusCreated)
	if nameless := r.call("POST", artifacts, `{"artifactType":"doc-artifact"}`, http.StatusCreated); len(fmt.Sprint(nameless["name"])) != 36 {
		r.Errorf("an artifact without a name is called %v", nameless["name"])
	}
}

func experiments(r *registry) {
	e := r.call("POST", "/experiments", `{"name":"exp","owner":"ada"}`, http.StatusCreated)
	run := r.call("POST", "/experiments/"+e.id()+"/experiment_runs", `{"name":"run","startTimeSinceEpoch":"1000"}`, http.StatusCreated)
	r.has(run, map[string]any{"experimentId": e.id(), "status": "RUNNING", "state": "LIVE", "startTimeSinceEpoch": "1000"})
	path := "/experiment_runs/" + run.id()
	r.call("PATCH", path, `{"endTimeSinceEpoch":"999"}`, http.StatusBadRequest)
	r.has(r.call("PATCH", path, `{"endTimeSinceEpoch":"2000","status":"FINISHED"}`, http.StatusOK), map[string]any{"endTimeSinceEpoch": "2000", "status": "FINISHED", "startTimeSinceEpoch": "1000"})
	if got := r.names("/experiment_runs?filterQuery=" + url.QueryEscape("endTimeSinceEpoch >= 2000 AND experimentId = "+e.id())); got != "run" {
		r.Errorf("runs that ended are %q", got)
	}

	artifacts := path + "/artifacts"
	m := r.call("POST", artifacts, `{"artifactType":"metric","name":"loss","value":0.5,"step":1,"timestamp":"10"}`, http.StatusCreated)
	r.has(m, map[string]any{"value": 0.5, "step": 1, "timestamp": "10", "experimentId": e.id(), "experimentRunId": run.id(), "customProperties": map[string]any{}})
	r.has(r.call("POST", artifacts, `{"artifactType":"metric","name":"loss","value":0.25,"step":2,"timestamp":"20"}`, http.StatusOK), map[string]any{"id": m.id(), "value": 0.25, "step": 2})
	r.call("POST", artifacts, `{"artifactType":"metric","name":"loss__x","value":9,"step":1}`, http.StatusCreated)
	p := r.call("POST", artifacts, `{"artifactType":"parameter","name":"rate","value":"0.1","parameterType":"number"}`, http.StatusCreated)
	r.has(r.call("POST", artifacts, `{"artifactType":"parameter","name":"rate","value":"0.2"}`, http.StatusOK), map[string]any{"id": p.id(), "value": "0.2", "parameterType": "number"})
	if got := r.names(artifacts); got != "loss loss__x rate" {
		r.Errorf("artifacts of the run are %q", got)
	}
	for query, want := range map[string]string{
		path + "/metric_history":                       "loss loss loss__x",
		path + "/metric_history?name=loss":             "loss loss",
		path + "/metric_history?name=loss&stepIds=2":   "loss",
		path + "/metric_history?name=los":              "",
		"/experiment_runs/metric_history?name=loss__x": "loss__x",
	} {
		if got := r.names(query); got != want {
			r.Errorf("%s is %q, not %q", query, got, want)
		}
	}
	r.call("GET", "/experiment_runs/999999/metric_history", "", http.StatusNotFound)
	r.call("POST", artifacts, `{"artifactType":"metric","name":"m"}`, http.StatusUnprocessableEntity)
	// A change of custom properties leaves alone to which run an artifact belongs.
	r.has(r.call("PATCH", "/artifacts/"+m.id(), `{"customProperties":{"k":{"metadataType":"MetadataBoolValue","bool_value":false}}}`, http.StatusOK), map[string]any{"experimentRunId": run.id()})
	r.has(r.call("GET", "/artifacts/"+m.id(), "", http.StatusOK), map[string]any{"experimentRunId": run.id(), "experimentId": e.id()})
	if got := r.names("/artifacts?filterQuery=" + url.QueryEscape("experimentRunId = "+run.id()+" AND artifactType != 'x' OR experimentRunId = '"+run.id()+"'")); got != "loss loss__x rate" {
		r.Errorf("artifacts found by their run are %q", got)
	}
}

func serving(r *registry) {
	m := r.call("POST", "/registered_models", `{"name":"served"}`, http.StatusCreated)
	versions := "/registered_models/" + m.id() + "/versions"
	v1 := r.call("POST", versions, `{"name":"v1"}`, http.StatusCreated)
	v2 := r.call("POST", versions, `{"name":"v2","customProperties":{"hf_gated":{"metadataType":"MetadataStringValue","string_value":"auto"}}}`, http.StatusCreated)
	env := r.call("POST", "/serving_environments", `{"name":"prod"}`, http.StatusCreated)
	is := r.call("POST", "/serving_environments/"+env.id()+"/inference_services", `{"name":"svc","registeredModelId":"`+m.id()+`","runtime":"onnx"}`, http.StatusCreated)
	r.has(is, map[string]any{"desiredState": "DEPLOYED", "servingEnvironmentId": env.id(), "runtime": "onnx"})
	path := "/inference_services/" + is.id()
	r.has(r.call("GET", path+"/model", "", http.StatusOK), map[string]any{"id": m.id()})
	r.has(r.call("GET", path+"/version", "", http.StatusOK), map[string]any{"id": v2.id()})
	r.has(r.call("PATCH", path, `{"modelVersionId":"`+v1.id()+`","desiredState":"UNDEPLOYED"}`, http.StatusOK), map[string]any{"desiredState": "UNDEPLOYED", "modelVersionId": v1.id()})
	r.has(r.call("GET", path+"/version", "", http.StatusOK), map[string]any{"id": v1.id()})
	r.call("PATCH", path, `{"modelVersionId":"999999"}`, http.StatusBadRequest)
	r.call("PATCH", path, `{"modelVersionId":"`+m.id()+`"}`, http.StatusBadRequest) // which is a model
	serve := r.call("POST", path+"/serves", `{"name":"s","modelVersionId":"`+v1.id()+`","lastKnownState":"RUNNING"}`, http.StatusCreated)
	r.has(serve, map[string]any{"modelVersionId": v1.id(), "lastKnownState": "RUNNING"})
	r.call("POST", path+"/serves", `{"modelVersionId":"`+v2.id()+`"}`, http.StatusBadRequest)
	if got := r.names(path + "/serves?filterQuery=" + url.QueryEscape("lastKnownState = 'RUNNING' and modelVersionId = '"+v1.id()+"'")); got != "s" {
		r.Errorf("serves are %q", got)
	}
	r.has(r.call("GET", "/inference_service?name=svc&parentResourceId="+env.id(), "", http.StatusOK), map[string]any{"id": is.id()})
	if got := r.names("/inference_services?filterQuery=" + url.QueryEscape("registeredModelId = "+m.id())); got != "svc" {
		r.Errorf("services of the model are %q", got)
	}
}

func refusals(r *registry) {
	m := r.call("POST", "/registered_models", `{"name":"taken","externalId":"taken-x"}`, http.StatusCreated)
	for _, c := range []struct {
		method, path, body string
		code               int
		message            string
	}{
		{"POST", "/registered_models", `{}`, 422, "required field 'name' is zero value."},
		{"POST", "/registered_models", `{"name":"taken"}`, 409, "another entity has this name already"},
		{"POST", "/registered_models", `{"name":"other","externalId":"taken-x"}`, 409, "another entity has this externalId already"},
		{"POST", "/registered_models", `{"name":"x","colour":"red"}`, 400, `json: unknown field "colour"`},
		{"POST", "/registered_models", `{"name":"x","state":"DEAD"}`, 400, "LIVE, ARCHIVED"},
		{"POST", "/registered_models", `{"name":"nul\u0000l"}`, 400, "null byte"},
		{"POST", "/registered_models", `{"name":"` + strings.Repeat("n", 256) + `"}`, 400, "more than 255 characters"},
		{"POST", "/registered_models", `{"name":"x"`, 400, "JSON"},
		{"POST", "/registered_models", `[]`, 400, "JSON object"},
		{"POST", "/registered_models", `{"name":"x","customProperties":{"a":{"metadataType":"MetadataProtoValue","proto_value":"x"}}}`, 400, "MetadataProtoValue"},
		{"POST", "/model_versions", `{"name":"v"}`, 422, "required field 'registeredModelId' is zero value."},
		{"POST", "/model_versions", `{"name":"v","registeredModelId":"999999"}`, 400, "no such RegisteredModel"},
		{"POST", "/registered_models/999999/versions", `{"name":"v"}`, 404, "RegisteredModel with id 999999"},
		{"POST", "/registered_models/" + m.id() + "/versions", `{"name":"v","registeredModelId":"1234"}`, 400, "the path says"},
		{"POST", "/registered_models/" + m.id() + "/versions", `{"id":"999999","name":"v"}`, 404, "ModelVersion"},
		{"POST", "/artifacts", `{"name":"x"}`, 422, "required field 'artifactType' is zero value."},
		{"POST", "/artifacts", `{"artifactType":"song"}`, 400, "model-artifact"},
		{"PATCH", "/registered_models/" + m.id(), `{"name":"renamed"}`, 400, "cannot be changed"},
		{"PATCH", "/registered_models/999999", `{}`, 404, "999999"},
		{"GET", "/registered_models/0x1", "", 400, "ids are whole numbers"},
		{"GET", "/registered_models/9223372036854775807", "", 404, "9223372036854775807"},
		{"GET", "/registered_models/92233720368547758070", "", 400, "ids are whole numbers"},
		{"GET", "/registered_models/999999/versions", "", 404, "999999"},
		{"GET", "/registered_model", "", 400, "name or externalId"},
		{"GET", "/registered_model?name=nobody", "", 404, "found"},
		{"GET", "/registered_model?name=TAKEN", "", 404, "found"},
		{"GET", "/registered_model?name=tak%25", "", 404, "found"},
		{"GET", "/model_version?name=v", "", 400, "parentResourceId"},
		{"GET", "/registered_models?orderBy=NAME", "", 400, "CREATE_TIME"},
		{"GET", "/registered_models?sortOrder=UP", "", 400, "ASC"},
		{"GET", "/registered_models?pageSize=-1", "", 400, "pageSize"},
		{"GET", "/registered_models?nextPageToken=!!", "", 400, "nextPageToken"},
		{"GET", "/registered_models?filterQuery=" + url.QueryEscape("name = "), "", 400, "filterQuery"},
		{"GET", "/registered_models?filterQuery=" + url.QueryEscape("createTimeSinceEpoch = 'x'"), "", 400, "cannot be"},
		{"GET", "/registered_models?filterQuery=a%00", "", 400, "null byte"},
		{"GET", "/registered_model?name=%ff", "", 400, "UTF-8"},
		{"GET", "/registered_models?filterQuery=" + url.QueryEscape("language = 'en'"), "", 400, "is a list"},
		{"GET", "/artifacts?artifactType=song", "", 400, "song"},
		{"GET", "/nothing", "", 404, "nothing"},
		{"DELETE", "/registered_models/" + m.id(), "", 405, "DELETE"},
		{"POST", "/registered_models", `{"name":"x","readme":"` + strings.Repeat("x", 5<<20) + `"}`, 413, "large"},
	} {
		if got := r.call(c.method, c.path, c.body, c.code); !strings.Contains(fmt.Sprint(got["message"]), c.message) {
			r.Errorf("%s %s %.60s: the message is %v", c.method, c.path, c.body, got["message"])
		}
	}
}

func paging(r *registry) {
	m := r.call("POST", "/registered_models", `{"name":"paged"}`, http.StatusCreated)
	below := "/registered_models/" + m.id() + "/versions"
	for i := range 7 {
		r.call("POST", below, fmt.Sprintf(`{"name":"v%d"}`, i), http.StatusCreated)
	}
	for _, order := range []string{"", "&orderBy=ID&sortOrder=DESC", "&orderBy=CREATE_TIME", "&orderBy=LAST_UPDATE_TIME&sortOrder=DESC"} {
		seen, token := map[string]bool{}, ""
		for pages := 0; ; pages++ {
			list := r.call("GET", below+"?pageSize=3"+order+"&nextPageToken="+url.QueryEscape(token), "", http.StatusOK)
			items, _ := list["items"].([]any)
			for _, item := range items {
				name, _ := item.(map[string]any)["name"].(string)
				if seen[name] {
					r.Errorf("%s: %s comes twice", order, name)
				}
				seen[name] = true
			}
			if token, _ = list["nextPageToken"].(string); token == "" {
				if pages != 2 || list["pageSize"] != 3.0 || list["size"] != 1.0 {
					r.Errorf("%s: the last page is %d with pageSize %v and size %v", order, pages, list["pageSize"], list["size"])
				}
				break
			}
			if pages == 0 && order == "" { // what is written meanwhile moves nothing
				r.call("POST", "/registered_models", `{"name":"in between"}`, http.StatusCreated)
			}
		}
		if len(seen) != 7 {
			r.Errorf("%s: %d of 7 were seen", order, len(seen))
		}
	}
	if empty := r.call("GET", below+"?name=nobody", "", http.StatusOK); fmt.Sprint(empty["items"]) != "[]" || empty["nextPageToken"] != "" {
		r.Errorf("an empty list is %v", empty)
	}
}

// lists: every list knows the filter.
func lists(r *registry) {
	for _, c := range collections() {
		if got := r.names("/" + c.plural + "?filterQuery=" + url.QueryEscape("name = 'no such name' OR `no such` = 1")); got != "" {
			r.Errorf("%s finds %q", c.plural, got)
		}
	}
}

func strangeText(r *registry) {
	for i, name := range []string{"it's", `"quoted"`, `back\slash`, "per%cent", "under_score", "a:b", "ünïcødé 模型 🌸", "'; DROP TABLE \"Context\"; --", "a/b?c#d", " spaced "} {
		key := "key " + name
		body, err := json.Marshal(map[string]any{"name": name, "description": name, "customProperties": map[string]any{
			key: map[string]any{"metadataType": "MetadataStringValue", "string_value": name},
		}})
		if err != nil {
			r.Fatal(err)
		}
		made := r.call("POST", "/registered_models", string(body), http.StatusCreated)
		r.has(r.call("GET", "/registered_model?name="+url.QueryEscape(name), "", http.StatusOK), map[string]any{"id": made.id(), "name": name, "description": name})
		quoted := "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(name) + "'"
		for _, query := range []string{"name = " + quoted, "description = " + quoted, "`" + strings.NewReplacer(`\`, `\\`, "`", "\\`").Replace(key) + "` = " + quoted} {
			if got := r.names("/registered_models?filterQuery=" + url.QueryEscape(query)); got != name {
				r.Errorf("%d: %s finds %q", i, query, got)
			}
		}
		v := r.call("POST", "/registered_models/"+made.id()+"/versions", string(body), http.StatusCreated)
		r.has(r.call("GET", "/model_version?parentResourceId="+made.id()+"&name="+url.QueryEscape(name), "", http.StatusOK), map[string]any{"id": v.id(), "name": name})
	}
	large := strings.Repeat("é", 1<<19)
	made := r.call("POST", "/registered_models", `{"name":"large","readme":"`+large+`"}`, http.StatusCreated)
	r.has(r.call("GET", "/registered_models/"+made.id(), "", http.StatusOK), map[string]any{"readme": large})
}

// noLostUpdate: who says which state it has seen is told when there is another.
// longText: texts are told apart behind what an index holds of them.
func longText(r *registry) {
	begin := strings.Repeat("ä", 126)
	for _, end := range []string{"", "b", "bc", "bcd", strings.Repeat("x", 300)} {
		text := begin + end
		r.call("POST", "/registered_models", fmt.Sprintf(`{"name":"long %d","customProperties":{"long":{"metadataType":"MetadataStringValue","string_value":%q}}}`, len(end), text), http.StatusCreated)
	}
	for _, end := range []string{"", "b", "bc", "bcd", strings.Repeat("x", 300)} {
		for _, query := range []string{"long = '" + begin + end + "'", "long IN ('none', '" + begin + end + "')"} {
			if got, want := r.names("/registered_models?filterQuery="+url.QueryEscape(query)), fmt.Sprint("long ", len(end)); got != want {
				r.Errorf("the text with %d more characters finds %q, not %q", len(end), got, want)
			}
		}
	}
	if got := r.names("/registered_models?filterQuery=" + url.QueryEscape("long = '"+begin+"bx'")); got != "" {
		r.Errorf("a text that nobody has finds %q", got)
	}
}

func noLostUpdate(r *registry) {
	_, header := r.send("POST", "/registered_models", `{"name":"locked"}`, http.StatusCreated, nil)
	found, header2 := r.send("GET", "/registered_model?name=locked", "", http.StatusOK, nil)
	tag := header.Get("ETag")
	if tag == "" || tag != header2.Get("ETag") {
		r.Fatalf("tags are %q and %q", tag, header2.Get("ETag"))
	}
	path := "/registered_models/" + found.id()
	r.send("PATCH", path, `{"owner":"first"}`, http.StatusOK, http.Header{"If-Match": {tag}})
	r.send("PATCH", path, `{"owner":"second"}`, http.StatusPreconditionFailed, http.Header{"If-Match": {tag}})
	r.has(r.call("GET", path, "", http.StatusOK), map[string]any{"owner": "first"})
}

// atOnce: writers beside each other lose nothing, and one of those who want the same name gets it.
func atOnce(r *registry) {
	e := r.call("POST", "/experiments", `{"name":"at once"}`, http.StatusCreated)
	run := r.call("POST", "/experiments/"+e.id()+"/experiment_runs", `{"name":"run"}`, http.StatusCreated)
	m := r.call("POST", "/registered_models", `{"name":"at once"}`, http.StatusCreated)
	const writers, each = 8, 5
	var all sync.WaitGroup
	codes := make(chan int, writers*each*3)
	for w := range writers {
		all.Go(func() {
			for i := range each {
				for path, body := range map[string]string{
					"/registered_models":                          fmt.Sprintf(`{"name":"same %d"}`, i),
					"/experiment_runs/" + run.id() + "/artifacts": fmt.Sprintf(`{"artifactType":"metric","name":"m","value":%d,"step":%d}`, i, w*each+i),
					"/registered_models/" + m.id() + "/versions":  fmt.Sprintf(`{"name":"%d-%d"}`, w, i),
				} {
					answer, err := http.Post(r.url+path, "application/json", strings.NewReader(body))
					if err != nil {
						r.Error(err)
						return
					}
					_ = answer.Body.Close()
					codes <- answer.StatusCode
				}
			}
		})
	}
	all.Wait()
	close(codes)
	count := map[int]int{}
	for code := range codes {
		count[code]++
	}
	if want := each*writers + each + 1; count[201] != want || count[409] != each*(writers-1) || count[200] != writers*each-1 {
		r.Errorf("answers were %v; %d should have made something", count, want)
	}
	if got := len(strings.Fields(r.names("/registered_models/" + m.id() + "/versions"))); got != writers*each {
		r.Errorf("%d versions are there, of %d", got, writers*each)
	}
	if got := len(strings.Fields(r.names("/experiment_runs/" + run.id() + "/metric_history?name=m"))); got != writers*each {
		r.Errorf("the history has %d values, of %d", got, writers*each)
	}
}

func healthy(r *registry) {
	root := strings.TrimSuffix(r.url, Base)
	for path, want := range map[string]string{"/readyz/isDirty": "OK", "/readyz/health": "OK", "/any/prefix/readyz/health?format=json": `"status":"pass"`} {
		if code, text := get(r.T, root+path); code != http.StatusOK || !strings.Contains(text, want) {
			r.Errorf("%s answers %d %q", path, code, text)
		}
	}
	if code, _ := get(r.T, root+"/"); code != http.StatusNotFound {
		r.Errorf("/ answers %d", code)
	}
	if code, text := get(r.T, root+newerBase+"/registered_model?name=iris"); code != http.StatusOK || !strings.Contains(text, `"name":"iris"`) {
		r.Errorf("under the newer name it answers %d %q", code, text)
	}
	var document struct{ Paths map[string]any }
	if _, text := get(r.T, r.url+"/openapi.json"); json.Unmarshal([]byte(text), &document) != nil || len(document.Paths) != 34 {
		r.Errorf("the document has %d paths", len(document.Paths))
	}
}

func get(t testing.TB, address string) (int, string) {
	t.Helper()
	answer, err := http.Get(address) //nolint:noctx // as simple clients do
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var text strings.Builder
	buffer := make([]byte, 1<<16)
	for {
		n, err := answer.Body.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			return answer.StatusCode, text.String()
		}
	}
}
