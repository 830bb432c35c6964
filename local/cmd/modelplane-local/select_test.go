// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/local/internal/components"
)

func TestSelect(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
		pass []string
	}{
		{"by link", []string{"/a/b/kubectl", "get", "pods"}, "kubectl", []string{"/a/b/kubectl", "get", "pods"}},
		{"by first argument", []string{"modelplane-local", "etcd", "--name=x"}, "etcd", []string{"etcd", "--name=x"}},
		{"a link wins over an argument", []string{"kubectl", "etcd"}, "kubectl", []string{"kubectl", "etcd"}},
		{"own command", []string{"modelplane-local", "up"}, "", nil},
		{"nothing", []string{"modelplane-local"}, "", nil},
		{"no arguments at all", nil, "", nil},
		{"a name later on", []string{"modelplane-local", "logs", "etcd"}, "", nil},
	} {
		c, pass, ok := components.Select(tc.args)
		if c.Name != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: selected %q (%v), want %q", tc.name, c.Name, ok, tc.want)
		}
		if diff := cmp.Diff(tc.pass, pass); diff != "" {
			t.Errorf("%s: arguments:\n%s", tc.name, diff)
		}
	}
}
