// SPDX-License-Identifier: Apache-2.0

package config

// Source gives the configuration that holds now. It never blocks, and what it returns must not be changed.
type Source interface {
	Current() *Config
}

// Static is a source that never changes.
func Static(c *Config) Source { return static{c} }

type static struct{ config *Config }

func (s static) Current() *Config { return s.config }

// Problem is something in the ConfigMap that needs a person.
type Problem struct {
	// Key of the ConfigMap that is concerned.
	Key string
	// Fault says what is wrong with which field. Empty if Warning.
	Fault string
	// Message says what is wrong with which field and what holds meanwhile.
	Message string
	// Warning is true when the key took effect nevertheless, for example when it has a field that nobody reads.
	Warning bool
}
