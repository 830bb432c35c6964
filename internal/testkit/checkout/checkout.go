// SPDX-License-Identifier: Apache-2.0

// Package checkout finds files of the checkout for tests and benches, which are built without its path in them. It is not
// for programs that users run.
package checkout

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

const module = "module github.com/modelplane/modelplane\n"

// Dir is a folder of the checkout, by its path from the root. Tests run in the folder of their package and programs of
// the checkout anywhere inside it, so that the root is one of those above.
func Dir(path ...string) (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && bytes.HasPrefix(mod, []byte(module)) {
			return filepath.Join(append([]string{dir}, path...)...), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside a checkout of Modelplane; run this from there", here)
		}
	}
}
