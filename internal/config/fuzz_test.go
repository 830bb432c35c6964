// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse holds Parse to what the rest of the house relies on: it never panics, it always returns a complete config,
// a key that was refused changes nothing, and a message can be shown.
func FuzzParse(f *testing.F) {
	for i := range sections {
		for _, raw := range []string{
			`{}`, `null`, `{"image":"a","cpuRequest":"1","memoryLimit":1}`, `{"resource":{"cpuLimit":"1e3"}}`,
			`{"ingressGateway":"a/b","domainTemplate":"{{ .Name }}","pathTemplate":"/{{ .Name }}","ingressDomain":"x.y"}`,
			`{"defaultDeploymentMode":"Serverless","deploymentRolloutStrategy":{"defaultRollout":{"maxSurge":"1%"}}}`,
			`{"storage":{"parameters":{"a":"b"},"path":"x"}}`, `{"maxBatchSize":"1","uidModelcar":0}`, `{"art":{"image":null}}`,
		} {
			f.Add(i, raw)
		}
	}
	same := cmp.Comparer(func(a, b *Config) bool { return cmp.Equal(*a, *b) })
	f.Fuzz(func(t *testing.T, which int, raw string) {
		s := sections[uint(which)%uint(len(sections))]
		got, problems := Parse(map[string]string{s.key: raw}, nil)
		refused := false
		for _, p := range problems {
			refused = refused || !p.Warning
			if p.Key != s.key || !utf8.ValidString(p.Message) || len(p.Message) > 4096 {
				t.Errorf("problem %+v", p)
			}
		}
		if refused != (got.FirstUnusable(s.key) != nil) {
			t.Errorf("refused is %v, and doubts are %+v", refused, got.Unusable)
		}
		want := Default()
		want.Unusable = got.Unusable
		if refused && !cmp.Equal(want, got, same) {
			t.Errorf("a refused key took effect: %s", cmp.Diff(want, got))
		}
		if _, ok := TranslateMode(got.Deploy.DefaultDeploymentMode); !ok {
			t.Errorf("mode %q", got.Deploy.DefaultDeploymentMode)
		}
		again, _ := Parse(map[string]string{s.key: raw}, got)
		if !cmp.Equal(got, again, same) {
			t.Errorf("the same data mean something else the second time: %s", cmp.Diff(got, again))
		}
		if _, err := json.Marshal(got); err != nil {
			t.Errorf("the config cannot be written: %v", err)
		}
	})
}
