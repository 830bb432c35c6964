// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLocalizeAddressesWebhooksByURL(t *testing.T) {
	in := `# A comment before the first document.
---
kind: ValidatingWebhookConfiguration
metadata: {name: a, labels: {x: "y"}}
webhooks:
- clientConfig: {service: {name: s, namespace: n, path: /validate-a, port: 443}}
- clientConfig: {url: "https://elsewhere/validate-b"}
---
kind: CustomResourceDefinition
spec:
  conversion: {strategy: Webhook, webhook: {clientConfig: {service: {name: s, namespace: n, path: /convert}}}}
---
kind: CustomResourceDefinition
spec: {conversion: {strategy: None}}
`
	want := `---
{"kind":"ValidatingWebhookConfiguration","metadata":{"labels":{"app.kubernetes.io/part-of":"modelplane","x":"y"},"name":"a"},"webhooks":[{"clientConfig":{"url":"https://127.0.0.1:1/validate-a"}},{"clientConfig":{"url":"https://elsewhere/validate-b"}}]}
---
{"kind":"CustomResourceDefinition","metadata":{"labels":{"app.kubernetes.io/part-of":"modelplane"}},"spec":{"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"url":"https://127.0.0.1:1/convert"}}}}}
---
{"kind":"CustomResourceDefinition","metadata":{"labels":{"app.kubernetes.io/part-of":"modelplane"}},"spec":{"conversion":{"strategy":"None"}}}
`
	var out bytes.Buffer
	if err := localize(&out, []byte(in), "https://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	if err := localize(&out, []byte("{"), ""); err == nil {
		t.Error("a broken manifest was accepted")
	}
}

func TestManifestFilesAreOnlyManifests(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.yaml", "kustomization.yaml", "README.md"} {
		touch(t, filepath.Join(dir, name))
	}
	got, err := manifestFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := manifestFiles(filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing directory was accepted")
	}
}
