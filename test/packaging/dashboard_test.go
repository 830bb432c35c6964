// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/chart/charttest"
	_ "github.com/modelplane/modelplane/internal/config" // registers metrics
	_ "github.com/modelplane/modelplane/internal/engine" // registers metrics
	"github.com/modelplane/modelplane/internal/maas/api"
	"github.com/modelplane/modelplane/internal/maas/metering"
	"github.com/modelplane/modelplane/internal/maas/payload"
	"github.com/modelplane/modelplane/internal/maas/quota"
	_ "github.com/modelplane/modelplane/internal/manager" // registers metrics
	"github.com/modelplane/modelplane/internal/modelregistry/catalog"
	"github.com/modelplane/modelplane/internal/modelregistry/server"
	"github.com/modelplane/modelplane/internal/process"
)

type panel struct {
	Title   string `json:"title"`
	Type    string `json:"type"`
	Targets []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

var (
	metricPattern = regexp.MustCompile(`\b[a-z]+(?:_[a-z]+)+\b`)
	labelPattern  = regexp.MustCompile(`\w+(?:=|!=|=~|!~)"[^"]*"`)
	legendPattern = regexp.MustCompile(`{{\s*(?:\$labels\.)?(\w+)\s*}}`)
	groupPattern  = regexp.MustCompile(`by \(([^)]*)\)`)
	matchPattern  = regexp.MustCompile(`(\w+)(?:=|!=|=~|!~)"`)
	descPattern   = regexp.MustCompile(`fqName: "([^"]+)".*constLabels: {(.*)}, variableLabels: {([^}]*)}`)
	constPattern  = regexp.MustCompile(`(\w+)=`)
	// Functions of the query language that look like metrics.
	functions = []string{"histogram_quantile"}
	// Labels that Prometheus adds.
	added = []string{"job", "pod", "le", "namespace", "service"}
)

// TestDashboardsShowWhatExists compares every query with the metrics that the code registers.
func TestDashboardsShowWhatExists(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(charttest.Dir(), "files", "dashboard*.json"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%d dashboards: %v", len(files), err)
	}
	registered := registeredMetrics(t)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { checkDashboard(t, file, registered) })
	}
}

func checkDashboard(t *testing.T, file string, registered map[string][]string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []panel `json:"panels"`
	}
	if err := json.Unmarshal(raw, &dashboard); err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, p := range dashboard.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			queries++
			for _, problem := range check(target.Expr, target.LegendFormat, registered) {
				t.Errorf("panel %q, %s: %s", p.Title, target.Expr, problem)
			}
		}
	}
	if queries < 10 {
		t.Errorf("only %d queries were found", queries)
	}
}

// TestAlertsAreAboutWhatExists does the same for alerts, and holds the page that lists them.
func TestAlertsAreAboutWhatExists(t *testing.T) {
	var rules []struct {
		Alert, Expr, For    string
		Labels, Annotations map[string]string
	}
	raw, err := os.ReadFile(filepath.Join(charttest.Dir(), "files", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw, &rules); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	registered := registeredMetrics(t)
	for _, r := range rules {
		for _, problem := range check(r.Expr, r.Annotations["summary"], registered) {
			t.Errorf("%s: %s", r.Alert, problem)
		}
		if r.For == "" || r.Labels["severity"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s does not say for how long, how bad it is or what to do", r.Alert)
		}
		if !strings.Contains(string(page), "| `"+r.Alert+"` |") {
			t.Errorf("docs/monitoring.md does not list %s", r.Alert)
		}
	}
	if listed := strings.Count(string(page), "| `Modelplane"); len(rules) < 5 || listed != len(rules) {
		t.Errorf("%d alerts, and the page lists %d", len(rules), listed)
	}
}

// registeredMetrics maps each metric to its labels.
func registeredMetrics(t *testing.T) map[string][]string {
	t.Helper()
	found := make(chan *prometheus.Desc)
	go func() {
		defer close(found)
		metrics.Registry.(prometheus.Collector).Describe(found)
		process.NewRegistry("manager").Describe(found)
		servers := prometheus.NewRegistry()
		server.NewMetrics(server.NewAPI(slog.New(slog.DiscardHandler)), servers)
		catalog.NewMetrics(servers)
		servers.MustRegister(collectors.NewDBStatsCollector(nil, "registry"))
		api.NewMetrics(servers)
		api.CacheMetrics(servers, nil)
		payload.NewMetrics(servers)
		if err := errors.Join(metering.NewMetrics(0).Register(servers), quota.NewLedger(nil, quota.LedgerOptions{}).Register(servers)); err != nil {
			t.Error(err)
		}
		servers.Describe(found)
	}()
	out := map[string][]string{}
	for desc := range found {
		parts := descPattern.FindStringSubmatch(desc.String())
		if parts == nil {
			t.Errorf("%s cannot be read", desc)
			continue
		}
		labels := strings.Split(parts[3], ",")
		for _, constant := range constPattern.FindAllStringSubmatch(parts[2], -1) {
			labels = append(labels, constant[1])
		}
		out[parts[1]] = labels
	}
	source, err := os.ReadFile("../../internal/modelmesh/mesh/metrics.go") // its registry needs a mesh that runs
	if err != nil {
		t.Fatal(err)
	}
	for name, labels := range meshMetrics {
		if !strings.Contains(string(source), `("`+name+`", `) {
			t.Errorf("the mesh has no %s", name)
		}
		out["modelmesh_"+name] = labels
	}
	return out
}

// meshMetrics are those that the mesh is known for, of which dashboards of others are made as well.
var meshMetrics = map[string][]string{
	"api_request_milliseconds": {"method", "code"}, "invoke_model_milliseconds": {"method", "code"}, "request_size_bytes": {"method", "code"},
	"response_size_bytes": {"method", "code"}, "cache_miss_milliseconds": nil, "loadmodel_milliseconds": nil, "unloadmodel_milliseconds": nil,
	"loading_queue_delay_milliseconds": nil, "model_sizing_milliseconds": nil, "age_at_eviction_milliseconds": nil, "loaded_model_size_bytes": nil,
	"loadmodel_failure": nil, "unloadmodel_failure": nil, "unloadmodel_attempt_failure": nil, "models_managed_total": nil, "models_loaded_total": nil,
	"models_with_failure_total": nil, "instance_capacity_bytes": nil, "instance_used_bytes": nil, "instance_used_bps": nil,
	"instance_models_total": nil, "instance_lru_seconds": nil, "instance_lru_age_seconds": nil,
}

// check tells what is wrong with one query. All queries are about a single metric.
func check(expr, legend string, registered map[string][]string) []string {
	var problems []string
	var names []string
	for _, name := range metricPattern.FindAllString(groupPattern.ReplaceAllString(labelPattern.ReplaceAllString(expr, ""), ""), -1) {
		if !slices.Contains(functions, name) {
			names = append(names, strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"))
		}
	}
	if names = slices.Compact(names); len(names) != 1 {
		return []string{"expected one metric, found " + strings.Join(names, ", ")}
	}
	labels, ok := registered[names[0]]
	if !ok {
		return []string{names[0] + " is not registered"}
	}
	var used []string
	for _, m := range groupPattern.FindAllStringSubmatch(expr, -1) {
		used = append(used, strings.Split(strings.ReplaceAll(m[1], " ", ""), ",")...)
	}
	for _, pattern := range []*regexp.Regexp{matchPattern, legendPattern} {
		for _, m := range pattern.FindAllStringSubmatch(expr+" "+legend, -1) {
			used = append(used, m[1])
		}
	}
	for _, label := range used {
		if !slices.Contains(labels, label) && !slices.Contains(added, label) {
			problems = append(problems, names[0]+" has no label "+label)
		}
	}
	return problems
}
