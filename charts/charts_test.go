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
	names, err := Resources()
	if err != nil || len(names) != len(defs) {
		t.Fatalf("%d names of %d definitions: %v", len(names), len(defs), err)
	}
	for i, def := range defs {
		name := names[i].Spec
		if name.Group != def.Spec.Group || name.Names.Kind != def.Spec.Names.Kind || name.Names.Plural != def.Spec.Names.Plural ||
			len(name.Versions) != len(def.Spec.Versions) || name.Versions[0].Name != def.Spec.Versions[0].Name {
			t.Errorf("%s is called %+v", onDisk[i], name)
		}
		if want := def.Spec.Group + "_" + def.Spec.Names.Plural + ".yaml"; filepath.Base(onDisk[i]) != want {
			t.Errorf("%s holds %s", onDisk[i], want)
		}
	}
}
