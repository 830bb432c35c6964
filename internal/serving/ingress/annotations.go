// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/internal/config"
)

// Refusal is an annotation that may not reach an Ingress, and why.
type Refusal struct{ Annotation, Why string }

// Advice is what to do about it, for a person.
func (r Refusal) Advice() string {
	return fmt.Sprintf("%s; remove it, or have it listed in ingress.allowedAnnotations of %s", r.Why, config.Name)
}

// Refusals are the annotations of a service that would reach beyond it: a proxy that all namespaces share reads them
// from its Ingress. They are in the order of their names. A service without an Ingress has none.
func Refusals(annotations map[string]string, cfg *config.Config) []Refusal {
	if cfg.Ingress.EnableGatewayAPI || cfg.Ingress.DisableIngressCreation {
		return nil
	}
	var out []Refusal
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if why := reachesBeyond(key); why != "" && !cfg.AnnotationBlocked(key) && !allowed(key, cfg) {
			out = append(out, Refusal{key, why})
		}
	}
	return out
}

func allowed(key string, cfg *config.Config) bool {
	return slices.ContainsFunc(cfg.Ingress.AllowedAnnotations, func(pattern string) bool {
		ok, err := path.Match(pattern, key)
		return ok && err == nil
	})
}

// reachesBeyond says what an annotation could do to others, or nothing. Controllers may be told to listen to other
// prefixes than their own, so that names which mean one thing only count behind any.
func reachesBeyond(key string) string {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		return ""
	}
	switch {
	case strings.Contains(name, "snippet"), ofProxy(prefix) && strings.HasPrefix(name, "config-"):
		return "it configures a proxy that other namespaces share"
	case strings.HasPrefix(name, "server-alias"):
		return "it takes hosts that may be those of others"
	case ofProxy(prefix) && strings.HasPrefix(name, "auth-"):
		return "it lets a shared proxy call any address and read any Secret"
	}
	return ""
}

// ofProxy tells whether a prefix is that of a proxy which builds its configuration from annotations. Load balancers of
// clouds, which have annotations of similar names, run for one Ingress alone.
func ofProxy(prefix string) bool {
	return prefix == "ingress.kubernetes.io" || strings.Contains(prefix, "nginx") || strings.Contains(prefix, "haproxy")
}
