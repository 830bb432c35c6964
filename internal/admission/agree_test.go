// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// TestStrictAgreesWithTheDecoder makes objects of every kind at random, about half
// of them with something wrong somewhere, and holds the walker against the decoder.
func TestStrictAgreesWithTheDecoder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	good, wrong := 0, 0
	for _, domain := range []string{Serving, ModelMesh, ModelRegistry, MaaS, MLflow} {
		kinds, err := Kinds(domain)
		must(t, err)
		for _, k := range kinds {
			for range 60 {
				m := &maker{Rand: random, mistakes: random.IntN(2)}
				raw, err := json.Marshal(m.value(reflect.TypeOf(k.New()), 0))
				must(t, err)
				compare(t, raw, k.New(), k.New())
				if Strict(raw, k.New()) == nil {
					good++
				} else {
					wrong++
				}
			}
		}
	}
	if good < 300 || wrong < 300 {
		t.Errorf("%d good and %d wrong objects: the maker does not make both", good, wrong)
	}
}

// maker makes JSON values for Go types, and mistakes in them.
type maker struct {
	*rand.Rand
	mistakes int
}

func (m *maker) mistake() bool {
	if m.mistakes > 0 && m.IntN(40) == 0 {
		m.mistakes--
		return true
	}
	return false
}

var samples = map[string]any{
	"intstr.IntOrString": "25%", "resource.Quantity": "1500m", "v1.Time": "2020-01-02T03:04:05Z",
	"v1beta1.MetricQuantity": "10", "v1.FieldsV1": map[string]any{"f:spec": map[string]any{}},
}

func (m *maker) value(t reflect.Type, depth int) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if depth > 0 && m.mistake() {
		return []any{true, 1.5, "text", -1, []any{}, map[string]any{"unheardOf": 1}, nil, 1 << 40}[m.IntN(8)]
	}
	if p := reflect.PointerTo(t); p.Implements(jsonReader) || p.Implements(textReader) {
		if sample, ok := samples[t.String()]; ok {
			return sample
		}
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.Struct:
		return m.structure(t, depth)
	case reflect.Map:
		return map[string]any{"some/key": m.value(t.Elem(), depth+1)}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return base64.StdEncoding.EncodeToString([]byte("bytes"))
		}
		return []any{m.value(t.Elem(), depth+1), m.value(t.Elem(), depth+1)}
	case reflect.String:
		return "text"
	case reflect.Bool:
		return true
	case reflect.Float64, reflect.Float32:
		return 0.5
	default:
		return m.IntN(100)
	}
}

func (m *maker) structure(t reflect.Type, depth int) any {
	out := map[string]any{}
	fields := fieldsOf(t)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		// Few fields of a large type, so that objects stay small, but deep ones happen.
		if name != "status" && m.IntN(len(fields)+3) < 4 || depth == 0 && name == "spec" {
			out[name] = m.value(fields[name], depth+1)
		}
	}
	if m.mistake() {
		out["unheardOf"] = 1
	}
	return out
}
