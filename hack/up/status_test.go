// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestManagerStatus shows what kubectl says of the pods, and the version that each of them tells.
func TestManagerStatus(t *testing.T) {
	for _, tc := range []struct {
		name, pods, version, want, fails string
	}{
		{
			name: "ready", pods: "modelplane-1\tTrue\t0\tmodelplane:abc", version: "modelplane v1.2.3 (commit x, built y)",
			want: "modelplane-1   True    0          modelplane:abc   v1.2.3\n",
		},
		{
			name: "one of two", pods: "modelplane-1\tFalse\t4\tmodelplane:abc\nmodelplane-2\tTrue\t0\tmodelplane:abc", version: "modelplane v1.2.3 (x)",
			want: "modelplane-1   False   4",
		},
		{name: "crashing", pods: "modelplane-1\tFalse\t4\tmodelplane:abc", want: "modelplane:abc   does not answer\n", fails: "the manager is not ready"},
		{name: "gone", fails: "no manager runs; make up starts one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			err := (&up{out: &out}).managerStatus(t.Context(), func(_ context.Context, _ string, args ...string) (string, error) {
				if slices.Contains(args, "exec") {
					if tc.version == "" {
						return "", errors.New("container is not running")
					}
					return tc.version, nil
				}
				return tc.pods, nil
			})
			if (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("error %v, want %q", err, tc.fails)
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("it shows\n%swant\n%s", out.String(), tc.want)
			}
		})
	}
}

// TestGatewayStatus shows its two parts, and nothing where they are not installed.
func TestGatewayStatus(t *testing.T) {
	for _, tc := range []struct{ name, parts, want, fails string }{
		{name: "none"},
		{name: "ready", parts: "envoy\t1\tmodelplane/envoy:abc\nenvoy-gateway\t1\tmodelplane-gateway:def\n", want: "envoy-gateway   true    modelplane-gateway:def\n"},
		{name: "crashing", parts: "envoy\t\tmodelplane/envoy:abc\nenvoy-gateway\t1\tmodelplane-gateway:def\n", want: "envoy           false", fails: "logs deployment/envoy "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			err := (&up{out: &out}).gatewayStatus(t.Context(), func(context.Context, string, ...string) (string, error) { return tc.parts, nil })
			if (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("error %v, want %q", err, tc.fails)
			}
			if !strings.Contains(out.String(), tc.want) || tc.want == "" && out.Len() > 0 {
				t.Errorf("it shows\n%swant\n%s", out.String(), tc.want)
			}
		})
	}
}

// TestProgramIsBesideKubectl: a second time the links are renewed.
func TestProgramIsBesideKubectl(t *testing.T) {
	bin := t.TempDir()
	for range 2 {
		if err := linkProgram(bin); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"modelplane", "kubectl-modelplane"} {
		if to, err := os.Readlink(filepath.Join(bin, name)); err != nil || !filepath.IsAbs(to) || !strings.HasSuffix(to, "/"+program) {
			t.Errorf("%s leads to %q: %v", name, to, err)
		}
	}
}
