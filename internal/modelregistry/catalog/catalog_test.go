// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/modelplane/modelplane/internal/process"
)

const (
	modelsAPI   = "/api/model_catalog/v1alpha1"
	serversAPI  = "/api/mcp_catalog/v1alpha1/mcp_servers"
	agentsAPI   = "/api/agent_catalog/v1alpha1/agents"
	runtimesAPI = "/api/serving_runtime_catalog/v1alpha1/serving_runtimes"
)

// server is a catalog of files, and what it logs.
type server struct {
	*keeper
	http.Handler
	log *bytes.Buffer
}

func newServer(t *testing.T, paths ...string) *server {
	t.Helper()
	s := &server{log: &bytes.Buffer{}}
	s.keeper = newKeeper(paths, []string{"testdata/performance"}, func(string) string { return "" },
		slog.New(slog.NewTextHandler(s.log, nil)), NewMetrics(prometheus.NewRegistry()))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	s.remeasure()
	s.reload(t.Context())
	s.Handler = s.handler(nil, process.Stopping(t.Context()))
	return s
}

func testServer(t *testing.T) *server {
	return newServer(t, "testdata/sources.yaml", "testdata/user.yaml")
}

// get asks for a path; its query is written as a person reads it.
func (s *server) get(t *testing.T, path string) (int, map[string]any) {
	t.Helper()
	path, query, _ := strings.Cut(path, "?")
	var pairs []string
	for _, pair := range strings.Split(query, "&") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			pairs = append(pairs, name+"="+url.QueryEscape(value))
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path+"?"+strings.Join(pairs, "&"), http.NoBody))
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("GET %s: %v in %s", path, err, w.Body)
	}
	return w.Code, body
}

// names of the items of an answer, or its error.
func names(code int, body map[string]any) string {
	if code != http.StatusOK {
		return fmt.Sprint(code)
	}
	var out []string
	items, _ := body["items"].([]any)
	for _, item := range items {
		one, _ := item.(map[string]any)
		switch {
		case one["name"] != nil:
			out = append(out, fmt.Sprint(one["name"]))
		case one["version"] != nil:
			out = append(out, fmt.Sprint(one["version"]))
		default:
			out = append(out, "-")
		}
	}
	return strings.Join(out, " ")
}

func TestLists(t *testing.T) {
	s := testServer(t)
	small := modelsAPI + "/sources/house/models/acme/small"
	for _, c := range []struct{ path, want string }{
		{modelsAPI + "/models", "acme/large acme/small zoo/detector"},
		{modelsAPI + "/models?sortOrder=DESC", "zoo/detector acme/small acme/large"},
		{modelsAPI + "/models?source=house,gone", "acme/large acme/small"},
		{modelsAPI + "/models?source=off", ""},
		{modelsAPI + "/models?sourceLabel=House", "acme/large acme/small"},
		{modelsAPI + "/models?sourceLabel=null", "zoo/detector"},
		{modelsAPI + "/models?sourceLabel=null&source=house", "400"},
		{modelsAPI + "/models?q=ANSWERS", "acme/small"},
		{modelsAPI + "/models?q=transformers", "acme/small"},
		{modelsAPI + "/models?orderBy=CREATE_TIME", "acme/large acme/small zoo/detector"},
		{modelsAPI + "/models?orderBy=CREATE_TIME&sortOrder=DESC", "acme/small acme/large zoo/detector"},
		{modelsAPI + "/models?orderBy=ACCURACY", "acme/small"}, // the others follow, by their numbers
		{modelsAPI + "/models?orderBy=provider.string_value&sortOrder=DESC", "zoo/detector"},
		{modelsAPI + "/models?orderBy=artifacts.ttft_p90.double_value", "acme/large acme/small zoo/detector"},
		{modelsAPI + "/models?orderBy=artifacts.ttft_p90.double_value&sortOrder=DESC", "acme/large acme/small zoo/detector"},
		{modelsAPI + "/models?orderBy=nonsense", "400"},
		{modelsAPI + "/models?orderBy=a.bool_value", "400"},
		{modelsAPI + "/models?sortOrder=up", "400"},
		{modelsAPI + "/models?pageSize=0", "400"},
		{modelsAPI + "/models?nextPageToken=x", "400"},
		{modelsAPI + "/models?recommendations=true", "acme/large acme/small zoo/detector"},
		{modelsAPI + "/models?recommendations=true&filterQuery=artifacts.use_case='chatbot'", "acme/small acme/large"},
		{modelsAPI + "/models?recommendations=maybe", "400"},
		{modelsAPI + "/models?targetRPS=-1", "400"},

		{modelsAPI + "/models?filterQuery=provider='Acme' and name like '%small'", "acme/small"},
		{modelsAPI + "/models?filterQuery=tasks='summarization'", "acme/small"},
		{modelsAPI + "/models?filterQuery=tasks!='summarization'", "acme/large zoo/detector"},
		{modelsAPI + "/models?filterQuery=language IN ('de','fr')", "acme/small"},
		{modelsAPI + "/models?filterQuery=license='Apache License 2.0'", "acme/small"},
		{modelsAPI + "/models?filterQuery=library_name='transformers' AND libraryName='transformers'", "acme/small"},
		{modelsAPI + "/models?filterQuery=layers>=24 AND score.double_value<1 AND open=true AND plain='as it is'", "acme/small"},
		{modelsAPI + "/models?filterQuery=createTimeSinceEpoch<1650000000000", "acme/large"},
		{modelsAPI + "/models?filterQuery=source_id<>'house'", "zoo/detector"},
		{modelsAPI + "/models?filterQuery=artifacts.use_case='chatbot' AND artifacts.hardware_type='B'", ""},
		{modelsAPI + "/models?filterQuery=artifacts.use_case='rag' AND provider='Acme' AND (artifacts.ttft_p90<60)", "acme/large"},
		{modelsAPI + "/models?filterQuery=artifacts.use_case='rag' OR provider='Zoo'", "acme/large acme/small zoo/detector"},
		{modelsAPI + "/models?filterQuery=artifacts.hardware_count.int_value=4", "acme/small"},
		{modelsAPI + "/models?filterQuery=artifacts.requests_per_second.double_value<=2", "acme/small"},
		{modelsAPI + "/models?filterQuery=provider=", "400"},
		{modelsAPI + "/models?namedQuery=quick", "acme/large acme/small"},
		{modelsAPI + "/models?namedQuery=unknown", "400"},

		{small + "/artifacts?artifactType=model-artifact", "- -"},
		{small + "/artifacts?artifact_type=metrics-artifact&pageSize=2", "accuracy-metrics-model-" + small64(t, s) + " performance-a1"},
		{small + "/artifacts?artifactType=nonsense", "400"},
		{small + "/artifacts?filterQuery=format='safetensors'", "-"},
		{small + "/artifacts?filterQuery=ttft_p90>300&orderBy=ttft_p90.double_value&sortOrder=DESC", "performance-b1 performance-a1 performance-a2"},
		{small + "/artifacts?filterQuery=(", "400"},
		{small + "/artifacts/performance", "performance-a1 performance-a2 performance-a3 performance-a4 performance-b1"},
		{small + "/artifacts/performance?recommendations=true", "performance-a1 performance-a3 performance-b1"},
		{small + "/artifacts/performance?recommendations=true&filterQuery=use_case='rag'", "performance-b1"},
		{small + "/artifacts/performance?recommendations=true&latencyProperty=nonsense", "400"},
		{modelsAPI + "/sources/house/models/acme/nothing/artifacts", "404"},
		{modelsAPI + "/sources/house/models/acme/nothing/artifacts/performance", "404"},
		{modelsAPI + "/sources/nobody/models/acme/small", "404"},

		{modelsAPI + "/sources", "Without a file Models of the house Switched off Other models"},
		{modelsAPI + "/sources?orderBy=NAME", "Models of the house Other models Switched off Without a file"},
		{modelsAPI + "/sources?name=OTHER", "Other models"},
		{modelsAPI + "/sources?assetType=mcp_servers", "Servers"},
		{modelsAPI + "/sources?assetType=agents", "Agents"},
		{modelsAPI + "/sources?assetType=nonsense", "400"},
		{modelsAPI + "/sources?orderBy=CREATE_TIME", "400"},
		{modelsAPI + "/labels", "House - House"},
		{modelsAPI + "/labels?assetType=models&orderBy=displayName", "House -"},
		{modelsAPI + "/labels?assetType=models&orderBy=displayName&sortOrder=DESC", "- House"},

		{serversAPI, "files-server metrics-server"},
		{serversAPI + "?name=metrics%25", ""},
		{serversAPI + "?name=metrics%", "metrics-server"},
		{serversAPI + "?q=monitoring system", "metrics-server"},
		{serversAPI + "?filterQuery=tags='metrics' AND transports='sse' AND securityIndicators.verifiedSource=true AND verifiedSource=true", "metrics-server"},
		{serversAPI + "?filterQuery=runtimeMetadata.defaultPort=8080 AND toolCount=2", "metrics-server"},
		{serversAPI + "?namedQuery=verified", "metrics-server"},
		{serversAPI + "?namedQuery=quick", "400"},
		{serversAPI + "?sourceLabel=null", ""},
		{serversAPI + "?includeTools=true&toolLimit=101", "400"},
		{serversAPI + "/17", "404"},
		{serversAPI + "/17/tools", "404"},
		{serversAPI + "/nonsense", "404"},
		{agentsAPI, "helper"},
		{agentsAPI + "?filterQuery=labels='support'", "helper"},
		{runtimesAPI, "vllm"},
		{runtimesAPI + "?filterQuery=requiresGPU=true AND supportedModelFormats.name='safetensors'", "vllm"},
		{"/nowhere", "404"},
	} {
		got := names(s.get(t, c.path))
		if strings.Contains(c.path, "orderBy") && c.want != "" {
			got = got[:min(len(c.want), len(got))] // what follows has no value to be ordered by
		}
		if c.want != got {
			t.Errorf("%s: %q, not %q", c.path, got, c.want)
		}
	}
}

// small64 is the number of a model, which names its accuracy.
func small64(t *testing.T, s *server) string {
	t.Helper()
	_, body := s.get(t, modelsAPI+"/sources/house/models/acme/small")
	return fmt.Sprint(body["id"])
}

func TestPagesAreStable(t *testing.T) {
	s := testServer(t)
	for _, order := range []string{"orderBy=NAME", "orderBy=ID", "orderBy=ACCURACY&sortOrder=DESC", "orderBy=provider.string_value", "recommendations=true"} {
		var got []string
		token := ""
		for pages := 0; pages == 0 || token != ""; pages++ {
			code, body := s.get(t, modelsAPI+"/models?pageSize=1&"+order+"&nextPageToken="+token)
			if got = append(got, names(code, body)); code != http.StatusOK || pages > 5 {
				t.Fatalf("%s: %v", order, got)
			}
			token, _ = body["nextPageToken"].(string)
			s = testServer(t) // another replica
		}
		whole := names(s.get(t, modelsAPI+"/models?"+order))
		if all := strings.Join(got, " "); all != whole || len(got) != 3 {
			t.Errorf("%s: %q page by page, %q at once", order, all, whole)
		}
	}
	_, body := s.get(t, modelsAPI+"/models?pageSize=1")
	if code, _ := s.get(t, modelsAPI+"/models?orderBy=ID&nextPageToken="+fmt.Sprint(body["nextPageToken"])); code != http.StatusBadRequest {
		t.Errorf("a token of another order: %d", code)
	}
}

// shown compares an answer with what is expected of it; numbers of entries are written as #.
func shownAs(t *testing.T, got any, want string) {
	t.Helper()
	var expected any
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(expected, anonymous(got)); diff != "" {
		t.Errorf("not as expected (-want +got):\n%s", diff)
	}
}

func anonymous(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, one := range value {
			if s, ok := one.(string); ok && (key == "id" || key == "serverId") && strings.Trim(s, "0123456789") == "" {
				value[key] = "#"
			} else {
				value[key] = anonymous(one)
			}
		}
	case []any:
		for i := range value {
			value[i] = anonymous(value[i])
		}
	}
	return value
}

func TestShapes(t *testing.T) {
	s := testServer(t)
	_, model := s.get(t, modelsAPI+"/sources/house/models/acme%2Fsmall")
	shownAs(t, model, `{
		"id": "#", "name": "acme/small", "source_id": "house", "externalId": "small-1", "description": "A small model that answers questions.",
		"readme": "# Small", "provider": "Acme", "maturity": "Generally Available", "language": ["en", "de"],
		"tasks": ["text-generation", "summarization"], "license": "Apache License 2.0", "licenseLink": "https://example.com/license",
		"libraryName": "transformers", "createTimeSinceEpoch": "1700000000000", "lastUpdateTimeSinceEpoch": "1700000001000",
		"customProperties": {
			"size": {"metadataType": "MetadataStringValue", "string_value": "1B params"},
			"tensor_type": {"metadataType": "MetadataStringValue", "string_value": "FP16"},
			"layers": {"metadataType": "MetadataIntValue", "int_value": "24"},
			"score": {"metadataType": "MetadataDoubleValue", "double_value": 0.5},
			"open": {"metadataType": "MetadataBoolValue", "bool_value": true},
			"plain": {"metadataType": "MetadataStringValue", "string_value": "as it is"}}}`)
	_, artifacts := s.get(t, modelsAPI+"/sources/house/models/acme/small/artifacts/performance?targetRPS=3&pageSize=1")
	delete(artifacts, "nextPageToken")
	shownAs(t, artifacts, `{"pageSize": 1, "size": 1, "items": [{
		"id": "#", "name": "performance-a1", "externalId": "a1", "artifactType": "metrics-artifact", "metricsType": "performance-metrics",
		"createTimeSinceEpoch": "5000",
		"customProperties": {
			"id": {"metadataType": "MetadataStringValue", "string_value": "a1"},
			"model_id": {"metadataType": "MetadataStringValue", "string_value": "acme/small"},
			"use_case": {"metadataType": "MetadataStringValue", "string_value": "chatbot"},
			"hardware_type": {"metadataType": "MetadataStringValue", "string_value": "A"},
			"hardware_count": {"metadataType": "MetadataIntValue", "int_value": "1"},
			"requests_per_second": {"metadataType": "MetadataIntValue", "int_value": "2"},
			"ttft_p90": {"metadataType": "MetadataDoubleValue", "double_value": 400.5},
			"replicas": {"metadataType": "MetadataIntValue", "int_value": "2"},
			"total_requests_per_second": {"metadataType": "MetadataDoubleValue", "double_value": 4}}}]}`)
	_, sources := s.get(t, modelsAPI+"/sources")
	shownAs(t, sources, `{"nextPageToken": "", "pageSize": 10, "size": 4, "items": [
		{"id": "gone", "name": "Without a file", "enabled": true, "labels": [], "assetType": "models", "status": "error",
			"error": "`+strings.TrimSpace(problemOf(t, s, "gone"))+`"},
		{"id": "house", "name": "Models of the house", "enabled": true, "labels": ["House"], "assetType": "models", "status": "available"},
		{"id": "off", "name": "Switched off", "enabled": false, "labels": [], "assetType": "models", "status": "disabled"},
		{"id": "other", "name": "Other models", "enabled": true, "labels": [], "assetType": "models", "status": "partially-available",
			"excludedModels": ["*-DRAFT"],
			"error": "zoo/nowhere: artifacts[0]: uri: \"ftp://\" is not one of oci, http, https, s3, gs, az, file, hf; models[3]: name is missing; zoo/detector: the name is there twice"}]}`)
	_, labels := s.get(t, modelsAPI+"/labels?assetType=models")
	shownAs(t, labels, `{"nextPageToken": "", "pageSize": 10, "size": 2, "items": [
		{"name": "House", "displayName": "Of the house", "assetType": "models"}, {"name": null, "displayName": "Others"}]}`)
	_, servers := s.get(t, serversAPI+"?includeTools=true&toolLimit=1&name=metrics%")
	shownAs(t, servers, `{"nextPageToken": "", "pageSize": 10, "size": 1, "items": [{
		"id": "#", "name": "metrics-server", "source_id": "servers", "description": "Asks a monitoring system.", "provider": "Acme", "version": "1.2.0",
		"license": "Apache License 2.0", "license_link": "https://example.com/license", "tags": ["monitoring", "metrics"],
		"transports": ["http", "sse"], "deploymentMode": "remote", "endpoints": {"http": "https://mcp.example.com/mcp"},
		"securityIndicators": {"verifiedSource": true, "sast": false}, "artifacts": [{"uri": "oci://registry.example.com/metrics:1.2.0"}],
		"runtimeMetadata": {"defaultPort": 8080}, "toolCount": 2,
		"tools": [{"id": "#", "name": "query", "description": "Asks.", "accessType": "read_only",
			"parameters": [{"name": "expression", "type": "string", "required": true}]}]}]}`)
}

func problemOf(t *testing.T, s *server, id string) string {
	t.Helper()
	for _, state := range s.current.Load().sources {
		if state.ID == id {
			return state.Problem
		}
	}
	t.Fatalf("no source %s", id)
	return ""
}

func TestParts(t *testing.T) {
	s := testServer(t)
	first := func(path string) string {
		_, body := s.get(t, path)
		items, _ := body["items"].([]any)
		if len(items) == 0 {
			t.Fatalf("nothing at %s", path)
		}
		one, _ := items[len(items)-1].(map[string]any)
		return fmt.Sprint(one["id"])
	}
	id := first(serversAPI)
	if got := names(s.get(t, serversAPI+"/"+id+"/tools?filterQuery=accessType='execute'")); got != "silence" {
		t.Errorf("tools: %q", got)
	}
	_, tool := s.get(t, serversAPI+"/"+id+"/tools/silence")
	shownAs(t, tool, `{"serverId": "#", "serverName": "metrics-server", "tool": {"id": "#", "name": "silence", "accessType": "execute"}}`)
	if code, _ := s.get(t, serversAPI+"/"+id+"/tools/nothing"); code != http.StatusNotFound {
		t.Errorf("a tool that is not there: %d", code)
	}
	if _, one := s.get(t, serversAPI+"/"+id); one["name"] != "metrics-server" || one["tools"] != nil {
		t.Errorf("one server: %v", one)
	}
	_, template := s.get(t, agentsAPI+"/"+first(agentsAPI)+"/artifacts?artifactType=template-artifact")
	shownAs(t, template, `{"nextPageToken": "", "pageSize": 10, "size": 1, "items": [{
		"id": "#", "name": "agent.yaml", "artifactType": "template-artifact", "content": "{\"framework\":\"langgraph\",\"name\":\"helper\"}"}]}`)
	if got := names(s.get(t, runtimesAPI+"/"+first(runtimesAPI)+"/versions?sortOrder=DESC")); got != "2 1" {
		t.Errorf("versions: %q", got)
	}
}

func TestOptions(t *testing.T) {
	s := testServer(t)
	_, models := s.get(t, modelsAPI+"/models/filter_options")
	filters, _ := models["filters"].(map[string]any)
	for name, want := range map[string]string{
		"provider":                               `{"type": "string", "values": ["Acme", "Zoo"]}`,
		"tasks":                                  `{"type": "string", "values": ["object-detection", "summarization", "text-generation"]}`,
		"library_name":                           `{"type": "string", "values": ["transformers"]}`,
		"layers.int_value":                       `{"type": "number", "range": {"min": 24, "max": 24}}`,
		"artifacts.use_case.string_value":        `{"type": "string", "values": ["chatbot", "rag"]}`,
		"artifacts.hardware_count.int_value":     `{"type": "number", "range": {"min": 1, "max": 4}}`,
		"artifacts.ttft_p90.double_value":        `{"type": "number", "range": {"min": 50, "max": 900}}`,
		"artifacts.overall_average.double_value": `{"type": "number", "range": {"min": 71.5, "max": 71.5}}`,
	} {
		shownAs(t, filters[name], want)
	}
	for _, name := range []string{"name", "readme", "description", "source_id", "artifacts.model_id.string_value"} {
		if filters[name] != nil {
			t.Errorf("%s is offered: %v", name, filters[name])
		}
	}
	shownAs(t, models["namedQueries"], `{"quick": {
		"artifacts.use_case.string_value": {"operator": "=", "value": "rag"}, "artifacts.ttft_p90.double_value": {"operator": "<=", "value": 900}}}`)
	_, servers := s.get(t, serversAPI+"/filter_options")
	shownAs(t, servers["namedQueries"], `{"verified": {
		"verifiedSource": {"operator": "=", "value": true}, "license": {"operator": "NOT IN", "value": ["MIT License"]}}}`)
}

func TestOtherRequests(t *testing.T) {
	s := testServer(t)
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{http.MethodPost, modelsAPI + "/models", http.StatusMethodNotAllowed},
		{http.MethodGet, modelsAPI + "/sources/preview", http.StatusMethodNotAllowed},
		{http.MethodGet, modelsAPI + "/models?q=%00", http.StatusBadRequest},
		{http.MethodGet, modelsAPI + "/models?q=%zz", http.StatusBadRequest},
		{http.MethodGet, modelsAPI + "/models?q=" + strings.Repeat("x", maxQuery), http.StatusBadRequest},
		{http.MethodGet, "/healthz", http.StatusOK},
		{http.MethodGet, "/readyz", http.StatusOK},
		{http.MethodHead, modelsAPI + "/models", http.StatusOK},
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, http.NoBody))
		if w.Code != c.want {
			t.Errorf("%s %.80s: %d", c.method, c.path, w.Code)
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if text := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(text, `modelplane_catalog_sources{status="available"}`) || !strings.Contains(text, `code="405"`) {
		t.Errorf("metrics: %d\n%s", w.Code, text)
	}
	refuse := s.handler(func(*http.Request) error { return &process.Refusal{Code: http.StatusForbidden, Message: "no"} }, process.Stopping(t.Context()))
	for path, want := range map[string]int{modelsAPI + "/models": http.StatusForbidden, "/metrics": http.StatusForbidden, "/readyz": http.StatusOK} {
		w := httptest.NewRecorder()
		refuse.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if w.Code != want {
			t.Errorf("%s for somebody who may not: %d", path, w.Code)
		}
	}
	if log := s.log.String(); strings.Count(log, "someday") != 1 || strings.Count(log, "performance/broken") != 1 {
		t.Errorf("the log does not tell once of what is left out:\n%s", log)
	}
}

func TestPreview(t *testing.T) {
	s := testServer(t)
	data := "models:\n- name: acme/a\n- name: acme/b-draft\n- name: zoo/c\n"
	for _, c := range []struct{ name, query, config, data, want string }{
		{"all", "", "type: yaml\nincludedModels: [acme/*]\nexcludedModels: ['*-draft']", data, "200 acme/a acme/b-draft zoo/c (3 1 2)"},
		{"included", "filterStatus=included", "type: yaml\nincludedModels: [acme/*]", data, "200 acme/a acme/b-draft (3 2 1)"},
		{"excluded, by page", "filterStatus=excluded&pageSize=1", "type: yaml\nexcludedModels: ['acme/*']", data, "200 acme/a (3 1 2)"},
		{"file of a source", "", "type: yaml\nproperties: {yamlCatalogPath: models.yaml}", "", "200 acme/large acme/small (2 2 0)"},
		{"file of nobody", "", "type: yaml\nproperties: {yamlCatalogPath: /etc/passwd}", "", "422"},
		{"hub of nobody", "", "type: hf\nincludedModels: [acme/*]\nproperties: {url: 'http://169.254.169.254'}", "", "422"},
		{"hub as a whole", "", "type: hf\nincludedModels: ['*']", "", "422"},
		{"unknown key", "", "type: yaml\nincluded: [a]", data, "422"},
		{"unknown type", "", "type: git", data, "422"},
		{"no models", "", "type: yaml", "servers: []", "422"},
		{"wrong status", "filterStatus=some", "type: yaml", data, "400"},
		{"no config", "", "", data, "400"},
		{"too much", "", "type: yaml", "models:\n# " + strings.Repeat("x", maxPreviewData), "400"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, body := s.post(t, c.query, c.config, c.data)
			got := fmt.Sprint(code)
			if code == http.StatusOK {
				summary, _ := body["summary"].(map[string]any)
				got = fmt.Sprintf("%d %s (%v %v %v)", code, names(code, body), summary["totalModels"], summary["includedModels"], summary["excludedModels"])
			}
			if got != c.want {
				t.Errorf("%s, not %s: %v", got, c.want, body["message"])
			}
		})
	}
}

// post asks for a preview.
func (s *server) post(t *testing.T, query, config, data string) (int, map[string]any) {
	t.Helper()
	var form bytes.Buffer
	writer := multipart.NewWriter(&form)
	for name, content := range map[string]string{"config": config, "catalogData": data} {
		if content == "" {
			continue
		}
		part, err := writer.CreateFormFile(name, name+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, modelsAPI+"/sources/preview?"+query, &form)
	r.Header.Set("Content-Type", writer.FormDataContentType())
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return w.Code, body
}
