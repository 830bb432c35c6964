// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"encoding/json"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
)

// wishes are what a client says about the speed of a model.
type wishes struct {
	recommendations bool
	// rate is how many requests per second there will be; 0 if nobody says.
	rate float64
	// Properties of measurements that hold these.
	latency, requests, hardware, hardwareCount string
	// named are those of them that the client has named.
	named []string
}

// maxRate keeps the number of replicas in 32 bits.
const maxRate = math.MaxInt32

func readWishes(q url.Values) (wishes, error) {
	var out wishes
	var err error
	if out.recommendations, err = readBool(q, "recommendations"); err != nil {
		return out, err
	}
	if s := q.Get("targetRPS"); s != "" {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 0 {
			return out, bad("targetRPS must be a whole number from 0 to %d.", maxRate)
		}
		out.rate = float64(n)
	}
	for _, p := range []struct {
		into           *string
		name, fallback string
	}{
		{&out.latency, "latencyProperty", "ttft_p90"}, {&out.requests, "rpsProperty", "requests_per_second"},
		{&out.hardwareCount, "hardwareCountProperty", "hardware_count"}, {&out.hardware, "hardwareTypeProperty", "hardware_type"},
	} {
		*p.into = cmp.Or(q.Get(p.name), p.fallback)
		if q.Has(p.name) {
			out.named = append(out.named, *p.into)
		}
	}
	return out, nil
}

// check refuses a property that no measurement has: the answer would look like one and be none.
func (w wishes) check(measured []*entry.Entry) error {
	for _, name := range w.named {
		if len(measured) > 0 && !slices.ContainsFunc(measured, func(e *entry.Entry) bool { return e.Has(name) }) {
			return bad("No measurement has the property %q; see customProperties of the artifacts for those there are.", name)
		}
	}
	return nil
}

// measurements are the artifacts that tell how fast a model is.
func measurements(e *entry.Entry) []*entry.Entry {
	var out []*entry.Entry
	for _, part := range e.Parts {
		if part.Fields["metricsType"] == entry.PerformanceMetrics {
			out = append(out, part)
		}
	}
	return out
}

// sized adds how many replicas the wanted rate takes, and what they can do together.
func (w wishes) sized(measured []*entry.Entry) []*entry.Entry {
	if w.rate <= 0 {
		return measured
	}
	out := make([]*entry.Entry, len(measured))
	for i, m := range measured {
		replicas, each := w.replicas(m)
		out[i] = m.With(map[string]entry.Property{
			"replicas":                  entry.NumberProperty(json.Number(strconv.FormatFloat(replicas, 'f', 0, 64))),
			"total_requests_per_second": entry.DoubleProperty(replicas * each),
		})
	}
	return out
}

func (w wishes) replicas(m *entry.Entry) (replicas, each float64) {
	each, ok := m.Number(w.requests)
	if !ok || each <= 0 || math.IsInf(each, 0) {
		each = 1
	}
	return min(max(math.Ceil(max(w.rate, 1)/each), 1), maxRate), each
}

// A step to more hardware must make a model faster by this part, and by more of it when it is fast already.
const (
	worthwhile     = 0.05
	worthwhileFast = 0.10
	fastLatency    = 100 // milliseconds
)

// candidate is a measurement with what decides about it.
type candidate struct {
	*entry.Entry
	latency, cost float64
}

// recommended leaves out measurements that no one would choose: per kind of hardware, those for which another is as fast and
// cheaper, then those that cost more for hardly any gain. The order stays.
func (w wishes) recommended(measured []*entry.Entry) []*entry.Entry {
	groups := map[string][]candidate{}
	for _, m := range measured {
		hardware := m.Text(w.hardware)
		groups[hardware] = append(groups[hardware], w.candidate(m))
	}
	keep := map[int64]bool{}
	for _, group := range groups {
		slices.SortFunc(group, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.latency, b.latency), cmp.Compare(a.cost, b.cost), strings.Compare(a.Name, b.Name))
		})
		for _, c := range worth(front(group)) {
			keep[c.ID] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(measured), func(e *entry.Entry) bool { return !keep[e.ID] })
}

func (w wishes) candidate(m *entry.Entry) candidate {
	latency, ok := m.Number(w.latency)
	if !ok || latency <= 0 {
		latency = math.Inf(1)
	}
	count, ok := m.Number(w.hardwareCount)
	if !ok || count <= 0 {
		count = 1
	}
	replicas, _ := w.replicas(m)
	return candidate{m, latency, count * replicas}
}

// front goes from the fastest on and takes what is cheaper than all before: the cheapest comes last.
func front(fastestFirst []candidate) []candidate {
	var out []candidate
	cheapest := math.Inf(1)
	for _, c := range fastestFirst {
		if c.cost < cheapest {
			out, cheapest = append(out, c), c.cost
		}
	}
	return out
}

// worth goes from the cheapest on and takes what is faster enough than the last.
func worth(cheapestLast []candidate) []candidate {
	var out []candidate
	for _, c := range slices.Backward(cheapestLast) {
		if len(out) == 0 {
			out = append(out, c)
			continue
		}
		last, enough := out[len(out)-1].latency, worthwhile
		if last <= fastLatency {
			enough = worthwhileFast
		}
		if math.IsInf(last, 1) && !math.IsInf(c.latency, 1) || (last-c.latency)/last > enough {
			out = append(out, c)
		}
	}
	return out
}

// fastest is the least latency that is recommended for a model.
func (w wishes) fastest(measured []*entry.Entry) (float64, bool) {
	best := math.Inf(1)
	for _, m := range w.recommended(measured) {
		best = min(best, w.candidate(m).latency)
	}
	return best, !math.IsInf(best, 1)
}
