// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
	"github.com/modelplane/modelplane/internal/process"
)

// metricsSettings is MM_METRICS: a kind, then options separated by semicolons.
type metricsSettings struct {
	enabled  bool
	port     int
	https    bool
	perModel bool
	fullName bool // methods are told with the package and the service that they are of
	noMemory bool // nothing is told of the memory of the process
	info     map[string]string
	unclear  []string // what has no meaning here, for the log
}

func parseMetrics(text, info string) (metricsSettings, error) {
	s := metricsSettings{port: 2112, https: true}
	kind, options, _ := strings.Cut(text, ":")
	switch kind {
	case "", "disabled":
		return s, nil
	case "prometheus":
	default:
		return s, fmt.Errorf("MM_METRICS is of the kind %q; only prometheus and disabled are supported", kind)
	}
	s.enabled = true
	for _, option := range list(options, ";") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "port":
			port, err := strconv.Atoi(value)
			if err != nil || port < 1 || port > 65535 {
				return s, fmt.Errorf("MM_METRICS has the port %q", value)
			}
			s.port = port
		case "scheme":
			if value != "http" && value != "https" {
				return s, fmt.Errorf("MM_METRICS has the scheme %q; use http or https", value)
			}
			s.https = value == "https"
		case "per_model_metrics":
			s.perModel = value == "" || value == "true"
		case "fq_names":
			s.fullName = value == "" || value == "true"
		case "mem_detail":
			s.noMemory = value == "none"
			s.unclear = append(s.unclear, unknownMemory(value)...)
		default:
			return s, fmt.Errorf("MM_METRICS has the option %q, which is unknown", name)
		}
	}
	if info != "" {
		if err := json.Unmarshal([]byte(info), &s.info); err != nil {
			_, labels, found := strings.Cut(info, ":")
			if !found {
				return s, errors.New("MM_INFO_METRICS must be a name, a colon and labels: name:label=value;label=value")
			}
			s.info = map[string]string{}
			for _, label := range list(labels, ";") {
				name, value, _ := strings.Cut(label, "=")
				s.info[name] = value
			}
		}
	}
	return s, nil
}

// unknownMemory are the words of a list of kinds of memory that nobody knows. Those that are known speak of a Java machine's; Go
// tells of all its memory at once.
func unknownMemory(kinds string) (out []string) {
	for _, kind := range list(kinds, ",") {
		switch kind {
		case "none", "all", "netty", "gc", "bp", "mp", "ma":
		default:
			out = append(out, "mem_detail="+kind)
		}
	}
	return out
}

// parseLogHeaders understands MM_LOG_REQUEST_HEADERS: names of headers and under which word they are logged.
func parseLogHeaders(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	var out map[string]string
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, errors.New(`MM_LOG_REQUEST_HEADERS is no JSON object of strings, as in {"x-request-id":"request"}`)
	}
	return out, nil
}

// metrics has the names that dashboards know.
type metrics struct {
	mesh               *Mesh
	registry           *prometheus.Registry
	perModel, fullName bool

	invoke, request                                         *prometheus.HistogramVec
	requestSize, responseSize                               *prometheus.HistogramVec
	miss, load, unload, queue, sizing, age, requestQueue    prometheus.Histogram
	modelSize                                               prometheus.Histogram
	loadFailures, unloadFailures, unloadAttempts, evictions prometheus.Counter
	dropped                                                 *prometheus.CounterVec
	methods, models                                         *known
}

// How many methods and models are told by their names; calls of others are told together.
const (
	mostMethods = 100
	mostModels  = 5000
	others      = "other"
)

// known are values of a label, a bounded number of them: whoever calls decides about the values.
type known struct {
	most int
	mu   sync.RWMutex
	all  map[string]bool
}

func newKnown(most int) *known { return &known{most: most, all: map[string]bool{}} }

// as is the value as it may be told. One that is new is taken up where there is room and it may be.
func (k *known) as(value string, may func() bool) string {
	if value == "" {
		return ""
	}
	k.mu.RLock()
	found, full := k.all[value], len(k.all) >= k.most
	k.mu.RUnlock()
	if found {
		return value
	}
	if full || !may() {
		return others
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.all) >= k.most && !k.all[value] {
		return others
	}
	k.all[value] = true
	return value
}

// drop tells whether a value was known.
func (k *known) drop(value string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer delete(k.all, value)
	return k.all[value]
}

var timeBuckets = []float64{.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 60_000, 120_000, 300_000}

func newMetrics(m *Mesh) (*metrics, error) {
	set := m.set.Metrics
	out := &metrics{
		mesh: m, registry: process.NewRegistry("mesh"), perModel: set.perModel, fullName: set.fullName, methods: newKnown(mostMethods), models: newKnown(mostModels),
	}
	if set.noMemory {
		out.registry.Unregister(collectors.NewGoCollector())
	}
	if len(set.unclear) > 0 {
		m.log.Warn("MM_METRICS asks for what there is not; all that Go tells of its memory is shown", "unknown", set.unclear)
	}
	labels := []string{"method", "code"}
	if set.perModel {
		labels = append(labels, "modelId", "vModelId")
	}
	sizes := prometheus.ExponentialBuckets(128, 4, 11)
	vector := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "modelmesh_" + name, Help: help, Buckets: buckets}, labels)
		out.registry.MustRegister(h)
		return h
	}
	plain := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "modelmesh_" + name, Help: help, Buckets: buckets})
		out.registry.MustRegister(h)
		return h
	}
	count := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "modelmesh_" + name, Help: help})
		out.registry.MustRegister(c)
		return c
	}
	out.request = vector("api_request_milliseconds", "How long calls of clients took.", timeBuckets)
	out.invoke = vector("invoke_model_milliseconds", "How long the runtime beside this instance took.", timeBuckets)
	out.requestSize = vector("request_size_bytes", "How large calls of clients were.", sizes)
	out.responseSize = vector("response_size_bytes", "How large the answers were.", sizes)
	out.miss = plain("cache_miss_milliseconds", "How long calls waited for a load.", timeBuckets)
	out.load = plain("loadmodel_milliseconds", "How long loads took.", timeBuckets)
	out.unload = plain("unloadmodel_milliseconds", "How long unloads took.", timeBuckets)
	out.queue = plain("loading_queue_delay_milliseconds", "How long loads waited for their turn.", timeBuckets)
	out.requestQueue = plain("req_queue_delay_milliseconds", "How long calls waited for others of a model whose runtime bears only so many at once.", timeBuckets)
	out.sizing = plain("model_sizing_milliseconds", "How long measuring models took.", timeBuckets)
	out.age = plain("age_at_eviction_milliseconds", "How long ago models were used that had to go.", append(timeBuckets, 3_600_000, 86_400_000))
	out.modelSize = plain("loaded_model_size_bytes", "How large loaded models are.", prometheus.ExponentialBuckets(16<<10, 4, 12))
	out.loadFailures = count("loadmodel_failure", "Loads that failed.")
	out.unloadFailures = count("unloadmodel_failure", "Models that could not be unloaded.")
	out.unloadAttempts = count("unloadmodel_attempt_failure", "Attempts to unload that failed.")
	out.evictions = count("evictions", "Models that had to go for others.")
	out.dropped = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "modelmesh_payloads_dropped", Help: "Payloads that no processor got."}, []string{"reason"})
	out.registry.MustRegister(out.dropped, &gauges{mesh: m})
	if len(set.info) > 0 {
		gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "modelmesh_instance_info", Help: "What the environment says of this instance.", ConstLabels: set.info})
		gauge.Set(1)
		if err := out.registry.Register(gauge); err != nil {
			return nil, fmt.Errorf("MM_INFO_METRICS: %w", err)
		}
	}
	return out, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// method is what a method is called: its own name, or with those of its package and service before it.
func (m *metrics) method(path string) string {
	if m.fullName {
		return path[1:]
	}
	return path[strings.LastIndexByte(path, '/')+1:]
}

func (m *metrics) labels(method string, c *call, err error) []string {
	code := status.Code(err)
	labels := []string{m.methods.as(m.method(method), func() bool { return code != codes.Unimplemented }), code.String()}
	if m.perModel {
		labels = append(labels, m.models.as(c.id, m.mesh.isModel(c.id)), m.models.as(c.vmodel, m.mesh.isVModel(c.vmodel)))
	}
	return labels
}

func (m *Mesh) isModel(id string) func() bool {
	return func() bool { _, ok := m.models.Get(id); return ok }
}

func (m *Mesh) isVModel(id string) func() bool {
	return func() bool { _, ok := m.vmodels.Get(id); return ok }
}

// forget is for a model, or a virtual one, that is no more.
func (m *metrics) forget(label, id string) {
	if !m.perModel || !m.models.drop(id) {
		return
	}
	for _, h := range []*prometheus.HistogramVec{m.invoke, m.request, m.requestSize, m.responseSize} {
		h.DeletePartialMatch(prometheus.Labels{label: id})
	}
}

func (m *metrics) api(method string, c *call, took time.Duration, received, sent int, err error) {
	if c.id == "" { // whoever calls nonsense must not fill memory
		method = "/unknown"
	}
	labels := m.labels(method, c, err)
	m.request.WithLabelValues(labels...).Observe(ms(took))
	m.requestSize.WithLabelValues(labels...).Observe(float64(received))
	m.responseSize.WithLabelValues(labels...).Observe(float64(sent))
}

func (m *metrics) invoked(c *call, took time.Duration, err error) {
	m.invoke.WithLabelValues(m.labels(c.x.method, c, err)...).Observe(ms(took))
}

func (m *metrics) missed(d time.Duration)        { m.miss.Observe(ms(d)) }
func (m *metrics) loaded(d time.Duration)        { m.load.Observe(ms(d)) }
func (m *metrics) unloaded(d time.Duration)      { m.unload.Observe(ms(d)) }
func (m *metrics) queueDelay(d time.Duration)    { m.queue.Observe(ms(d)) }
func (m *metrics) requestQueued(d time.Duration) { m.requestQueue.Observe(ms(d)) }
func (m *metrics) sized(d time.Duration)         { m.sizing.Observe(ms(d)) }
func (m *metrics) size(bytes int64)              { m.modelSize.Observe(float64(bytes)) }
func (m *metrics) loadFailure()                  { m.loadFailures.Inc() }
func (m *metrics) unloadFailed()                 { m.unloadFailures.Inc() }
func (m *metrics) unloadAttemptFailed()          { m.unloadAttempts.Inc() }
func (m *metrics) evicted(age time.Duration)     { m.evictions.Inc(); m.age.Observe(ms(age)) }

func (m *metrics) payloadDropped(reason string) { m.dropped.WithLabelValues(reason).Inc() }

// gauges are looked at when somebody asks. Those of the whole mesh are the leader's.
type gauges struct{ mesh *Mesh }

var (
	describe        = func(name, help string) *prometheus.Desc { return prometheus.NewDesc("modelmesh_"+name, help, nil, nil) }
	descLRU         = describe("instance_lru_seconds", "When the model was last used that would go next.")
	descLRUAge      = describe("instance_lru_age_seconds", "How long ago that was.")
	descCapacity    = describe("instance_capacity_bytes", "Memory for models.")
	descUsed        = describe("instance_used_bytes", "Memory that models take.")
	descUsedBps     = describe("instance_used_bps", "The same in hundredths of a percent of the capacity.")
	descModels      = describe("instance_models_total", "Models in this instance.")
	descManaged     = describe("models_managed_total", "Models that are registered; told by the leader.")
	descLoaded      = describe("models_loaded_total", "Models that some instance has; told by the leader.")
	descWithFailure = describe("models_with_failure_total", "Models that failed to load somewhere; told by the leader.")
)

// Describe is for Prometheus.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLRU, descLRUAge, descCapacity, descUsed, descUsedBps, descModels, descManaged, descLoaded, descWithFailure} {
		out <- d
	}
}

// Collect is for Prometheus.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	m := g.mesh
	tell := func(d *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	c, now := m.cache(), m.now()
	oldest := c.oldest(now.UnixMilli())
	capacity, used := c.models.Capacity(), c.models.Used()
	tell(descLRU, float64(oldest)/1000)
	tell(descLRUAge, float64(now.UnixMilli()-oldest)/1000)
	tell(descCapacity, float64(capacity*unit))
	tell(descUsed, float64(used*unit))
	tell(descUsedBps, float64(used*10_000/max(capacity, 1)))
	tell(descModels, float64(c.models.Len()))
	if m.election == nil || !m.election.Leads() {
		return
	}
	var loaded, failed int
	m.models.Each(func(_ string, row store.Row[store.Model]) bool {
		loaded += truth(len(row.Value.Copies) > 0)
		failed += truth(len(m.failures(row.Value)) > 0)
		return true
	})
	tell(descManaged, float64(m.models.Len()))
	tell(descLoaded, float64(loaded))
	tell(descWithFailure, float64(failed))
}
