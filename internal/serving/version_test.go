// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/version"
)

// flaky fails at first.
type flaky struct{ asked int }

func (f *flaky) ServerVersion() (*version.Info, error) {
	if f.asked++; f.asked == 1 {
		return nil, errors.New("no answer")
	}
	return &version.Info{Major: "1", Minor: "33+", GitVersion: "v1.33.4-eks-1234"}, nil
}

func TestVersionIsAskedForOnce(t *testing.T) {
	source := &flaky{}
	c := &cluster{ask: source}
	if v, err := c.Version(); err == nil {
		t.Errorf("a failure gave version %v", v)
	}
	for range 3 {
		v, err := c.Version()
		if err != nil || v.Major() != 1 || v.Minor() != 33 {
			t.Fatalf("got %v, %v", v, err)
		}
	}
	if source.asked != 2 {
		t.Errorf("asked %d times, want 2", source.asked)
	}
	if v, err := new(cluster).Version(); v != nil || err != nil {
		t.Errorf("without a cluster: %v, %v", v, err)
	}
}
