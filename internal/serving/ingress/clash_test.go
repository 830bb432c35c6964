// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/config"
)

// Whoever has an address in common with a service is found by what the service asks for. Names are made of few letters,
// dashes and what components are called, so that many clash.
func TestServicesThatClashFindEachOther(t *testing.T) {
	words := []string{"a", "b", "predictor", "pre", "dictor", "transformer", "explainer"}
	random := rand.New(rand.NewSource(1))
	name := func() string {
		var parts []string
		for range 1 + random.Intn(3) {
			parts = append(parts, words[random.Intn(len(words))])
		}
		return strings.Join(parts, "-")
	}
	templates := map[string]bool{ // and whether they let services clash that have nothing in common
		"{{ .Name }}-{{ .Namespace }}.{{ .IngressDomain }}":          false,
		"{{ .Namespace }}-{{ .Name }}.{{ .IngressDomain }}":          false,
		"{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}":          false,
		"models-{{ .Name }}.{{ .IngressDomain }}":                    false,
		"{{ .Name }}-in-{{ .Namespace }}.{{ .IngressDomain }}":       true,
		"{{ .Name }}-{{ .Name }}.{{ .IngressDomain }}":               true,
		"{{ if .Name }}{{ .Name }}{{ end }}.{{ .IngressDomain }}":    true,
		"{{ .Labels.team }}.{{ .IngressDomain }}":                    true,
		"{{ printf \"%s-x\" .Name }}.{{ .IngressDomain }}":           true,
		"{{ .Name }}.{{ .IngressDomain }}.{{ .Namespace }}.svc.test": true,
	}
	for text, all := range templates {
		t.Run(text, func(t *testing.T) {
			cfg := config.Default()
			cfg.Ingress.DomainTemplate = text
			clashes := 0
			for range 4000 {
				a, b := Service{Name: name(), Namespace: name(), Transformer: &Backend{}}, Service{Name: name(), Namespace: name()}
				if random.Intn(2) == 0 {
					b.Namespace = a.Namespace
				}
				values, ok := ClashQueries(a, cfg)
				if ok == all {
					t.Fatalf("asks for %v, %v", values, ok)
				}
				if all {
					return
				}
				claims, err := Claims(a, cfg)
				if err != nil {
					continue
				}
				others, err := Claims(b, cfg)
				if err != nil || !slices.ContainsFunc(claims, func(c string) bool { return slices.Contains(others, c) }) {
					continue
				}
				clashes++
				for _, way := range [][2]Service{{a, b}, {b, a}} {
					values, _ := ClashQueries(way[0], cfg)
					index := ClashIndex(way[1].Name, way[1].Namespace)
					if !slices.ContainsFunc(values, func(v string) bool { return slices.Contains(index, v) }) {
						t.Fatalf("%s/%s asks for %v and does not find %s/%s under %v",
							way[0].Namespace, way[0].Name, values, way[1].Namespace, way[1].Name, index)
					}
				}
			}
			if clashes == 0 {
				t.Error("nothing clashed")
			}
		})
	}
}

func TestPathsAreClaimedToo(t *testing.T) {
	cfg := config.Default()
	cfg.Ingress.EnableGatewayAPI, cfg.Ingress.PathTemplate = true, "/{{ .Namespace }}-{{ .Name }}"
	a, err := Claims(Service{Name: "b", Namespace: "a-x"}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Claims(Service{Name: "x-b", Namespace: "a"}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(a, "example.com/a-x-b") || !slices.Contains(b, "example.com/a-x-b") {
		t.Errorf("claims are %v and %v", a, b)
	}
}
