// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sdkWaitsForAGeneration uses the SDK that people have: who waits for a generation is told when it is served, and not
// before, although the one from before still answers.
func (c cluster) sdkWaitsForAGeneration() {
	python, err := os.ReadFile(filepath.Join(root, c.images, "sdk-python"))
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
		c.Skip("there is no SDK: `make e2e` says why")
	}
	if err != nil {
		c.Fatal(err)
	}
	const namespace = "e2e-sdk"
	c.models(namespace)
	c.addModel("words", []byte("These are words and no model."))
	out := c.must("env", "KUBECONFIG="+filepath.Join(c.dir, "kubeconfig"), strings.TrimSpace(string(python)), "test/e2e/testdata/sdk.py", namespace)
	if !strings.HasSuffix(strings.TrimSpace(out), "done") {
		c.Errorf("it did not come to its end:\n%s", out)
	}
	c.mustKubectl("delete", "namespace", namespace, "--timeout=5m")
	c.mustKubectl("delete", "persistentvolume", "models-"+namespace, "--timeout=5m")
}
