// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	"testing"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/sources"
)

// The server understands what it is given by default.
func TestDefaultsAreRead(t *testing.T) {
	for text, want := range map[string]int{defaultPlain: 0, defaultCatalogs: 7} {
		file, err := sources.Parse([]byte(text), dataDir)
		if err != nil || len(file.Sources) != want || len(file.Queries) != 1 {
			t.Errorf("%v: %+v", err, file)
		}
	}
	for _, u := range users {
		if _, err := sources.Parse([]byte(u.empty), u.dir); err != nil {
			t.Errorf("%s: %v", u.configMap, err)
		}
	}
}
