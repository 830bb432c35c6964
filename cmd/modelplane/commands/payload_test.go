// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const payloadConfig = "apiVersion: llm-d.ai/v1alpha1\nkind: PayloadProcessorConfig\nplugins:\n- type: %s\nprofiles:\n- plugins: {request: [{pluginRef: %[1]s}]}\n"

// TestPayloadFlags: a wrong call and a wrong configuration are told before anything is opened, and the variables of the
// platform are understood.
func TestPayloadFlags(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain.yaml", fmt.Sprintf(payloadConfig, "maas-headers-guard"))
	decides := write("decides.yaml", fmt.Sprintf(payloadConfig, "maas-enforcement"))
	unknown := write("unknown.yaml", fmt.Sprintf(payloadConfig, "made-up"))
	write("ca.crt", "")
	for _, test := range []struct {
		name      string
		args      []string
		variables map[string]string
		want      string
	}{
		{"no configuration", nil, nil, "--config-file"},
		{"no namespace", []string{"--config-file", plain}, nil, "--tenant-namespace"},
		{"an unknown plugin", []string{"--config-file", unknown, "--tenant-namespace", "a"}, nil, `line 4: plugin type "made-up" is unknown`},
		{"fine", []string{"--config-file", plain, "--tenant-namespace", "a,b"}, nil, ""},
		{"half a certificate", []string{"--config-file", plain, "--tenant-namespace", "a", "--tls-key-file", "x"}, nil, "go together"},
		{"nobody decides", []string{"--config-file", decides, "--tenant-namespace", "a"}, nil, "--maas-api-url"},
		{"the platform's", []string{"--config-file", decides}, map[string]string{
			"TENANT_NAMESPACE": "a", "TENANT_NAME": "blue", "NAMESPACE": "infra", "TLS_CERT": filepath.Join(dir, "tls.crt"), "TLS_KEY": filepath.Join(dir, "tls.key"),
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, name := range []string{"TENANT_NAMESPACE", "TENANT_NAME", "NAMESPACE", "TLS_CERT", "TLS_KEY"} {
				t.Setenv(name, test.variables[name])
			}
			f := &payloadFlags{}
			c := newPayloadCommand()
			c.ResetFlags()
			f.register(c)
			if err := c.ParseFlags(test.args); err != nil {
				t.Fatal(err)
			}
			err := f.check()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Fatalf("%v, want %q", err, test.want)
			}
			if test.variables == nil {
				return
			}
			if d := f.decide; d.API != "https://maas-api-blue.infra.svc.cluster.local:8444" || d.Tenant != "blue" || d.Namespace != "a" || d.CA != filepath.Join(dir, "ca.crt") {
				t.Errorf("%+v", d)
			}
		})
	}
}
