// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// standardCase is the in.yaml of a case: what differs from the default configuration, and a service.
type standardCase struct {
	Ingress          config.Ingress
	InferenceService config.InferenceService
	Service          Service
}

func (c standardCase) config() *config.Config {
	cfg := config.Default()
	cfg.Ingress, cfg.InferenceService = c.Ingress, c.InferenceService
	return cfg
}

func readStandard(t testing.TB, in []byte) standardCase {
	t.Helper()
	c := standardCase{Ingress: config.Default().Ingress}
	if err := yaml.UnmarshalStrict(in, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// result is the out.yaml of a case, followed by the objects.
type result struct {
	Error        string            `json:"error,omitempty"`
	URL          string            `json:"url,omitempty"`
	Path         string            `json:"path,omitempty"`
	Address      string            `json:"address,omitempty"`
	Components   map[string]string `json:"components,omitempty"`
	ClusterLocal bool              `json:"clusterLocal,omitempty"`
	CanSplit     bool              `json:"canSplit,omitempty"`
	Ignored      []string          `json:"ignored,omitempty"`
}

func (r *result) urls(set URLSet) {
	r.URL, r.Path, r.Address = set.URL, set.Path, set.Address
	r.Components = map[string]string{}
	for component, url := range set.Components {
		r.Components[string(component)] = url
	}
}

func TestStandardGolden(t *testing.T) {
	testkit.Golden(t, filepath.Join("testdata", "standard"), func(t *testing.T, in []byte) []byte {
		c, before := readStandard(t, in), readStandard(t, in)
		cfg := c.config()
		out := result{ClusterLocal: ClusterLocal(c.Service, cfg), CanSplit: CanSplit(cfg), Ignored: Ignored(c.Service, cfg)}
		set, urlErr := URLs(c.Service, cfg)
		out.urls(set)
		objects, err := Objects(c.Service, cfg)
		if err == nil {
			err = urlErr
		}
		if err != nil {
			out.Error = err.Error()
		}
		if diff := cmp.Diff(before, c); diff != "" {
			t.Errorf("the input was changed:\n%s", diff)
		}
		return document(t, out, objects)
	})
}

func document(t testing.TB, out result, objects []client.Object) []byte {
	t.Helper()
	var doc bytes.Buffer
	write := func(v any) {
		raw, err := yaml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		doc.Write(raw)
	}
	write(out)
	for _, obj := range objects {
		body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			t.Fatal(err)
		}
		delete(body, "status")
		doc.WriteString("---\n")
		write(body)
	}
	return doc.Bytes()
}
