// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"testing"

	"github.com/modelplane/modelplane/internal/config"
)

func TestEveryKindOfTheDomainIsAdmitted(t *testing.T) {
	kinds, err := new(Settings).Admission()
	if err != nil {
		t.Fatal(err)
	}
	rules, defaults := 0, 0
	for _, k := range kinds {
		if k.Validate != nil {
			rules++
		}
		if k.Default != nil {
			defaults++
		}
	}
	if len(kinds) < 12 || rules != 6 || defaults != 1 {
		t.Errorf("%d kinds, %d with rules, %d with defaults", len(kinds), rules, defaults)
	}
}

func TestSettingsComeFromTheirSource(t *testing.T) {
	s := new(Settings)
	if cfg := s.Current(); cfg != nil {
		t.Errorf("settings without a source have %v", cfg)
	}
	cfg := config.Default()
	s.SetSource(config.Static(cfg))
	if s.Current() != cfg {
		t.Error("the settings are not those of the source")
	}
}
