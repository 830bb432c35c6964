// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/testkit"
)

type knativeCase struct {
	Ingress config.Ingress
	Service KnativeService
}

func (c knativeCase) config() *config.Config {
	cfg := config.Default()
	cfg.Ingress = c.Ingress
	return cfg
}

func readKnative(t testing.TB, in []byte) knativeCase {
	t.Helper()
	c := knativeCase{Ingress: config.Default().Ingress}
	if err := yaml.UnmarshalStrict(in, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestKnativeGolden(t *testing.T) {
	testkit.Golden(t, filepath.Join("testdata", "knative"), func(t *testing.T, in []byte) []byte {
		c, before := readKnative(t, in), readKnative(t, in)
		out := result{Ignored: KnativeIgnored(c.Service, c.config())}
		set, urlErr := KnativeURLs(c.Service, c.config())
		out.urls(set)
		objects, err := KnativeObjects(c.Service, c.config())
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

func TestHostPattern(t *testing.T) {
	tests := map[string]struct {
		host, domain string
		yes, no      []string
	}{
		"outside": {
			host: "iris.flowers.example.com",
			yes:  []string{"iris.flowers.example.com", "iris.flowers.example.com:8080"},
			no:   []string{"iris-flowers.example.com", "iris.flowers.example.com.evil.com", "x.iris.flowers.example.com", "iris.flowers.example.com:"},
		},
		"inside": {
			host: "iris.flowers.svc.cluster.local",
			yes:  []string{"iris.flowers", "iris.flowers.svc", "iris.flowers.svc.cluster.local", "iris.flowers:80", "iris.flowers.svc.cluster.local:80"},
			no:   []string{"iris", "iris.flowers.cluster.local", "irisxflowers"},
		},
		"another cluster domain": {
			host: "iris.flowers.svc.corp.internal", domain: "corp.internal",
			yes: []string{"iris.flowers.svc.corp.internal", "iris.flowers.svc"},
			no:  []string{"iris.flowers.svc.cluster.local"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pattern := regexp.MustCompile(hostPattern(test.host, test.domain))
			for _, host := range test.yes {
				if !pattern.MatchString(host) {
					t.Errorf("%s does not match %s", pattern, host)
				}
			}
			for _, host := range test.no {
				if pattern.MatchString(host) {
					t.Errorf("%s matches %s", pattern, host)
				}
			}
		})
	}
}

func TestExternalHost(t *testing.T) {
	tests := map[string]struct{ service, component, url, want string }{
		"usual":                      {"iris", "iris-predictor", "http://iris-predictor.flowers.example.com", "iris.flowers.example.com"},
		"with a port":                {"iris", "iris-predictor", "http://iris-predictor.flowers.example.com:8080", "iris.flowers.example.com:8080"},
		"an old name":                {"iris", "iris-predictor-default", "http://iris-predictor-default.flowers.example.com", "iris.flowers.example.com"},
		"a promoted name":            {"iris", "iris-v2-predictor", "http://iris-v2-predictor.flowers.example.com", "iris.flowers.example.com"},
		"a service named so":         {"a-predictor-b", "a-predictor-b-predictor", "http://a-predictor-b-predictor.flowers.example.com", "a-predictor-b.flowers.example.com"},
		"the default namespace":      {"iris", "iris-predictor", "http://iris-predictor-default.example.com", "iris-default.example.com"},
		"the name last":              {"iris", "iris-predictor", "http://flowers.iris-predictor.example.com", "flowers.iris.example.com"},
		"a name that Knative cut":    {"a-long-name", "a-long-name-predictor", "http://a-long-na-predictor.example.com", "a-long-na.example.com"},
		"an old name that it cut":    {"a-long-name", "a-long-name-transformer-default", "http://a-long-na-transformer-default.example.com", "a-long-na.example.com"},
		"nothing of the name at all": {"iris", "iris-predictor", "http://flowers.example.com", "flowers.example.com"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			k := KnativeService{Name: test.service, Namespace: "flowers", Predictor: KnativePart{Name: test.component, URL: test.url}}
			if got, err := k.externalHost(); err != nil || got != test.want {
				t.Errorf("got %s, %v, want %s", got, err, test.want)
			}
		})
	}
}
