// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"path/filepath"
	"testing"
)

// TestCRDs makes sure that every packaged definition is in the binary.
func TestCRDs(t *testing.T) {
	onDisk, err := filepath.Glob("modelplane/files/crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defs, err := CRDs()
	if err != nil {
		t.Fatal(err)
	}
	if len(defs) == 0 || len(defs) != len(onDisk) {
		t.Errorf("%d definitions embedded, %d files packaged", len(defs), len(onDisk))
	}
	for i, def := range defs {
		if want := def.Spec.Group + "_" + def.Spec.Names.Plural + ".yaml"; filepath.Base(onDisk[i]) != want {
			t.Errorf("%s holds %s", onDisk[i], want)
		}
	}
}
