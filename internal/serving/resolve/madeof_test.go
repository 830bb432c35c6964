// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"reflect"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/config"
)

// What holds a plan back when it is in doubt is what a frozen service
// recognises a change of the platform by.
func TestSectionsAreThoseOfTheKeys(t *testing.T) {
	parts := sections(config.Default())
	if len(parts) != len(ConfigKeys) {
		t.Fatalf("%d sections for %d keys", len(parts), len(ConfigKeys))
	}
	for i, part := range parts {
		if got := reflect.TypeOf(part).Name(); !strings.EqualFold(got, ConfigKeys[i]) {
			t.Errorf("section %d is %s, and the key is %s", i, got, ConfigKeys[i])
		}
	}
}
