// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWhomTheTokenIsFor: the pod's own token goes to registries of the cluster over https, and a token that was asked for to
// every registry but one that may be no registry at all.
func TestWhomTheTokenIsFor(t *testing.T) {
	before := account
	t.Cleanup(func() { account = before })
	account = t.TempDir()
	for name, content := range map[string]string{"token": "own", "given": "given"} {
		if err := os.WriteFile(filepath.Join(account, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	given := map[string]string{envFile: filepath.Join(account, "given")}
	for _, c := range []struct {
		name, source string
		env          map[string]string
		want         string
	}{
		{name: "configured", source: "m", env: map[string]string{envBase: "https://registry.example"}, want: "own"},
		{name: "configured without protection", source: "m", env: map[string]string{envBase: "registry:8080"}},
		{name: "of a namespace", source: "m?namespace=team", env: map[string]string{envScheme: "https"}, want: "own"},
		{name: "a Service", source: "r.team.svc:8443/m", env: map[string]string{envScheme: "https"}, want: "own"},
		{name: "a host elsewhere", source: "registry.example/m/v", env: map[string]string{envScheme: "https"}},
		{name: "a host elsewhere, asked for", source: "registry.example/m/v", env: given, want: "given"},
		{name: "a host with a port, asked for", source: "registry:8080/m", env: given, want: "given"},
		{name: "perhaps a host, asked for", source: "registry/m", env: given},
	} {
		s, err := Parse(Scheme+"://"+c.source, func(name string) string { return c.env[name] })
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.token(s.meanings[0].at)
		if err != nil || got != c.want {
			t.Errorf("%s: %s is shown %q, want %q (%v)", c.name, s.meanings[0].at, got, c.want, err)
		}
	}
}
