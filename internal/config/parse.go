// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
)

// section reads one key of the ConfigMap and knows its place in a Config.
type section struct {
	key string
	// read overlays the defaults in the config with a key's value and tells what is wrong with it.
	read func(raw string, into *Config) (unknown, faults []string)
	// keep copies the section from one config to another.
	keep func(to, from *Config)
}

// sections are all keys, in the order in which they are documented.
var sections = []section{
	sectionOf(KeyExplainers, func(c *Config) *Explainers { return &c.Explainers }, checkExplainers),
	sectionOf(KeyInferenceService, func(c *Config) *InferenceService { return &c.InferenceService }, checkInferenceService),
	sectionOf(KeyMultiNode, func(c *Config) *MultiNode { return &c.MultiNode }, checkMultiNode),
	sectionOf(KeyOpenTelemetryCollector, func(c *Config) *OpenTelemetryCollector { return &c.OpenTelemetryCollector }, checkCollector),
	sectionOf(KeyAutoscaler, func(c *Config) *Autoscaler { return &c.Autoscaler }, checkAutoscaler),
	sectionOf(KeyStorageInitializer, func(c *Config) *StorageInitializer { return &c.StorageInitializer }, checkStorageInitializer),
	sectionOf(KeyCredentials, func(c *Config) *Credentials { return &c.Credentials }, checkCredentials),
	sectionOf(KeyIngress, func(c *Config) *Ingress { return &c.Ingress }, checkIngress),
	sectionOf(KeyLogger, func(c *Config) *Logger { return &c.Logger }, checkLogger),
	sectionOf(KeyBatcher, func(c *Config) *Batcher { return &c.Batcher }, checkBatcher),
	sectionOf(KeyAgent, func(c *Config) *Agent { return &c.Agent }, checkAgent),
	sectionOf(KeyRouter, func(c *Config) *Router { return &c.Router }, checkRouter),
	sectionOf(KeyDeploy, func(c *Config) *Deploy { return &c.Deploy }, checkDeploy),
	sectionOf(KeyMetricsAggregator, func(c *Config) *MetricsAggregator { return &c.MetricsAggregator }, nil),
	sectionOf(KeyLocalModel, func(c *Config) *LocalModel { return &c.LocalModel }, checkLocalModel),
	sectionOf(KeySecurity, func(c *Config) *Security { return &c.Security }, nil),
	sectionOf(KeyService, func(c *Config) *Service { return &c.Service }, nil),
	sectionOf(KeyScheduler, func(c *Config) *Scheduler { return &c.Scheduler }, checkScheduler),
	sectionOf(KeyWVA, func(c *Config) *WVA { return &c.WVA }, checkWVA),
}

// sectionOf ties a key to its part of a Config and to the rules that go beyond types. A check may also complete the
// value.
func sectionOf[T any](key string, part func(*Config) *T, check func(*checker, *T, object)) section {
	return section{
		key: key,
		read: func(raw string, into *Config) (unknown, faults []string) {
			value := part(into)
			given, unknown, faults := decode(raw, value)
			if len(faults) > 0 || check == nil {
				return unknown, faults
			}
			c := &checker{}
			check(c, value, given)
			return unknown, c.faults
		},
		keep: func(to, from *Config) { *part(to) = *part(from) },
	}
}

// Keys are the keys of the ConfigMap that mean something.
func Keys() []string {
	keys := make([]string, len(sections))
	for i, s := range sections {
		keys[i] = s.key
	}
	return keys
}

// What holds while a key is wrong.
const (
	lastHolds    = "What held before stays in force until it is mended."
	defaultHolds = "What it said before is not known: its defaults stand in until it is mended, and what was made before is left as it is."
)

// Parse reads the data of the ConfigMap. A key that is missing means its defaults. A key that is wrong means what it
// meant in last, or its defaults when that is not known, which puts it in doubt; it is reported, and the other keys hold
// all the same. Keys that mean nothing, such as _example, are ignored.
func Parse(data map[string]string, last *Config) (*Config, []Problem) {
	next := Default()
	var problems []Problem
	for _, s := range sections {
		raw, ok := data[s.key]
		if !ok {
			continue
		}
		unknown, faults := s.read(raw, next)
		if len(faults) > 0 {
			s.keep(next, orDefault(last))
			p := Problem{Key: s.key, Fault: complain(s.key, faults)}
			if known := last != nil && last.FirstUnusable(s.key) == nil; known {
				p.Message = p.Fault + " " + lastHolds
			} else {
				p.Message = p.Fault + " " + defaultHolds
				next.Unusable = append(next.Unusable, p)
			}
			problems = append(problems, p)
		}
		if len(unknown) > 0 {
			problems = append(problems, Problem{Key: s.key, Message: ignored(s.key, unknown), Warning: true})
		}
	}
	return next, problems
}

func orDefault(c *Config) *Config {
	if c == nil {
		return Default()
	}
	return c
}

// mostNamed bounds how many faults or fields one message lists.
const mostNamed = 5

func complain(key string, faults []string) string {
	return fmt.Sprintf("The key %q of ConfigMap %s cannot be used: %s.", key, Name, list(faults, "; "))
}

func ignored(key string, unknown []string) string {
	return fmt.Sprintf("The key %q of ConfigMap %s has fields that nothing reads: %s. Correct their spelling or remove "+
		"them; everything else in the key is in force.", key, Name, list(unknown, ", "))
}

func list(items []string, separator string) string {
	if len(items) <= mostNamed {
		return strings.Join(items, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:mostNamed], separator), len(items)-mostNamed)
}
