// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// LastGood reads the ConfigMap once per version and remembers the last good value of every key. As long as the data stay
// the same it returns the same pointer. It may be used by many at the same time.
type LastGood struct {
	mu       sync.Mutex
	version  string
	digest   [sha256.Size]byte
	config   *Config
	problems []Problem
	// written is true while there is a ConfigMap whose good keys are worth keeping.
	written bool
}

// NewLastGood knows nothing but the defaults.
func NewLastGood() *LastGood { return &LastGood{config: Default(), digest: digest(nil)} }

// Read returns what a version of the ConfigMap means and what is wrong with it. No ConfigMap means the defaults. Neither
// result may be changed.
func (b *LastGood) Read(cm *corev1.ConfigMap) (*Config, []Problem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	version := versionOf(cm)
	if version != "" && version == b.version {
		return b.config, b.problems
	}
	b.version = version
	var data map[string]string
	if cm != nil {
		data = cm.Data
	}
	if d := digest(data); d != b.digest {
		b.digest = d
		b.config, b.problems = b.parse(cm)
	}
	return b.config, b.problems
}

func (b *LastGood) parse(cm *corev1.ConfigMap) (*Config, []Problem) {
	last := b.config
	if !b.written {
		last = nil
	}
	if b.written = cm != nil; !b.written {
		return Default(), nil
	}
	return Parse(cm.Data, last)
}

// versionOf is empty when the object does not say, as in files.
func versionOf(cm *corev1.ConfigMap) string {
	if cm == nil || cm.ResourceVersion == "" {
		return ""
	}
	return string(cm.UID) + "/" + cm.ResourceVersion
}

// digest tells data apart. Lengths are part of it so that no two maps look alike.
func digest(data map[string]string) (sum [sha256.Size]byte) {
	h := sha256.New()
	write := func(s string) {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		write(key)
		write(data[key])
	}
	h.Sum(sum[:0])
	return sum
}
