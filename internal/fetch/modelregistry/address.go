// SPDX-License-Identifier: Apache-2.0

// Package modelregistry finds out where a model is that is called by the name it has in a model registry. It only asks the
// registry; what lies at the address that it finds is fetched by others.
//
// The pod's token goes to registries that were configured or live in the cluster, and never to a host that a name may have
// been taken for.
package modelregistry

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
	"github.com/modelplane/modelplane/internal/kube/address"
)

// Scheme of addresses that are names in a registry.
const Scheme = "model-registry"

// EnvToken holds a token; it must never show.
const EnvToken = "MODEL_REGISTRY_TOKEN"

// Variables that say where the registry is. All but those about tokens and certificates are known from other initializers.
const (
	envBase    = "MODEL_REGISTRY_BASE_URL"
	envScheme  = "MODEL_REGISTRY_SCHEME"
	envService = "MODEL_REGISTRY_SERVICE_NAME"
	envDomain  = "MODEL_REGISTRY_CLUSTER_DOMAIN"
	envFile    = EnvToken + "_FILE"
	envCA      = "MODEL_REGISTRY_CA_FILE"
)

// account is where Kubernetes mounts what a pod's service account has.
var account = "/var/run/secrets/kubernetes.io/serviceaccount"

// Source is a model as a registry knows it.
type Source struct {
	env func(string) string
	// meanings are what the address may mean, in the order in which they are tried.
	meanings []meaning
}

// meaning is a registry and names in it; the version may be empty for the newest.
type meaning struct {
	at             *registry
	model, version string
	// guess is set where the registry may be a name of something else.
	guess bool
}

var (
	hostShape = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)
	})
	namespaceShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]+$`) })
)

const forms = "write model-registry://MODEL, MODEL/VERSION, HOST/MODEL or HOST/MODEL/VERSION, with %2F for a slash in a name"

// Parse reads model-registry://[HOST/]MODEL[/VERSION][?namespace=NAMESPACE].
func Parse(text string, env func(string) string) (*Source, error) {
	_, rest, _ := strings.Cut(text, "://")
	rest, query, _ := strings.Cut(rest, "?")
	raw := strings.Split(strings.TrimSuffix(rest, "/"), "/")
	names := make([]string, len(raw))
	for i := range raw {
		name, err := url.PathUnescape(raw[i])
		if err != nil || name == "" {
			return nil, errors.New("it has an empty name, or a percent sign that is not written as %25; " + forms)
		}
		names[i] = name
	}
	namespace, err := namespaceOf(query)
	if err != nil {
		return nil, err
	}
	places, err := placesOf(env)
	if err != nil {
		return nil, err
	}
	s := &Source{env: env}
	if namespace != "" {
		s.meanings, err = inNamespace(places.of(namespace), names)
	} else {
		s.meanings, err = places.read(raw, names)
	}
	return s, err
}

func namespaceOf(query string) (string, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", errors.New("what follows the question mark cannot be read; write ?namespace=NAMESPACE")
	}
	for key := range values {
		if key != "namespace" {
			return "", errors.New("it has a parameter other than namespace, which nobody knows; remove it")
		}
	}
	namespace := values.Get("namespace")
	if values.Has("namespace") && !namespaceShape().MatchString(namespace) {
		return "", errors.New("the parameter namespace names no namespace; correct it")
	}
	return namespace, nil
}

func inNamespace(at *registry, names []string) ([]meaning, error) {
	switch len(names) {
	case 1:
		return []meaning{{at: at, model: names[0]}}, nil
	case 2:
		return []meaning{{at: at, model: names[0], version: names[1]}}, nil
	}
	return nil, errors.New("it names a host and a namespace; keep one of them, and write %2F for a slash in a name")
}

// read understands an address that names no namespace. Of two names the first may be a host.
func (p places) read(raw, names []string) ([]meaning, error) {
	host := hostShape().MatchString(raw[0])
	switch {
	case len(names) == 1:
		return p.configured(meaning{model: names[0]})
	case len(names) == 2 && !host:
		return p.configured(meaning{model: names[0], version: names[1]})
	case len(names) == 2:
		first := meaning{at: p.host(raw[0]), model: names[1], guess: true}
		first.at.maybe = !first.at.near && !strings.Contains(raw[0], ":")
		if p.base == nil {
			return []meaning{first}, nil
		}
		return []meaning{first, {at: p.base, model: names[0], version: names[1]}}, nil
	case len(names) == 3 && host:
		return []meaning{{at: p.host(raw[0]), model: names[1], version: names[2]}}, nil
	case len(names) == 3:
		return nil, errors.New("what stands first is no host; " + forms)
	}
	return nil, errors.New("it has more names than a host, a model and a version; " + forms)
}

func (p places) configured(m meaning) ([]meaning, error) {
	if p.base == nil {
		return nil, errors.New("it names no model registry, and none is configured; write model-registry://HOST/MODEL/VERSION, " +
			"append ?namespace=NAMESPACE, or set modelRegistryUrl of storageInitializer in inferenceservice-config")
	}
	m.at = p.base
	return []meaning{m}, nil
}

// places are what the environment says about where registries are.
type places struct {
	base                    *registry // nil where none is configured
	scheme, service, domain string
}

// registry is the address of one.
type registry struct {
	url string
	// near registries are configured or in the cluster: the pod's own token is meant for them.
	near bool
	// maybe it is none, but a model with the name of a host: it is asked without any token.
	maybe bool
}

func placesOf(env func(string) string) (places, error) {
	p := places{
		scheme:  strings.ToLower(env(envScheme)),
		service: cmp.Or(env(envService), "model-registry-service"),
		domain:  cmp.Or(strings.Trim(env(envDomain), "."), "svc.cluster.local"),
	}
	base := strings.TrimSpace(env(envBase))
	if before, _, found := strings.Cut(strings.ToLower(base), "://"); found {
		if p.scheme == "" && before == "https" {
			p.scheme = before
		}
	} else if base != "" {
		base = cmp.Or(p.scheme, "http") + "://" + base
	}
	if p.scheme = cmp.Or(p.scheme, "http"); p.scheme != "http" && p.scheme != "https" {
		return p, fmt.Errorf("%s must be http or https; correct it", envScheme)
	}
	if base == "" {
		return p, nil
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return p, fmt.Errorf("%s is no address of a registry; write HOST:PORT or https://HOST", envBase)
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), apiPath)
	p.base = &registry{url: strings.TrimRight(u.String(), "/"), near: true}
	return p, nil
}

// host is a registry that an address names.
func (p places) host(host string) *registry {
	name := host
	if bare, _, err := net.SplitHostPort(host); err == nil {
		name = bare
	}
	near := strings.HasSuffix(name, "."+p.domain) || strings.HasSuffix(name, ".svc")
	return &registry{url: p.scheme + "://" + host, near: near}
}

// of is the registry of a namespace, at the port of the one that is configured.
func (p places) of(namespace string) *registry {
	port := ""
	if p.base != nil {
		if u, err := url.Parse(p.base.url); err == nil {
			port = u.Port()
		}
	}
	if port == "" && p.scheme == "https" {
		port = "8443"
	}
	return &registry{url: p.scheme + "://" + net.JoinHostPort(p.service+"."+namespace+"."+p.domain, cmp.Or(port, "8080")), near: true}
}

// Trust is what is configured for the registry, or else what the cluster's own Services are signed with, and what the
// platform mounts for all.
func (s *Source) Trust() transfer.Trust {
	var out transfer.Trust
	if file := s.env(envCA); file != "" {
		out.Files = append(out.Files, file)
	} else if services := filepath.Join(account, "service-ca.crt"); exists(services) {
		out.Files = append(out.Files, services)
	}
	if dir := s.env("CA_BUNDLE_VOLUME_MOUNT_POINT"); dir != "" && s.env("CA_BUNDLE_CONFIGMAP_NAME") != "" {
		out.Files = append(out.Files, filepath.Join(dir, "cabundle.crt"))
	}
	return out
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// token that a registry is asked with, read anew because it is replaced now and then; empty for none.
func (s *Source) token(r *registry) (string, error) {
	if r.maybe {
		return "", nil
	}
	if token := strings.TrimSpace(s.env(EnvToken)); token != "" {
		return sound(token, EnvToken)
	}
	file := s.env(envFile)
	if file == "" {
		// A service account's token opens the API server, too: it goes nowhere by chance.
		file = filepath.Join(account, "token")
		if !r.near || !strings.HasPrefix(r.url, "https://") || !exists(file) {
			return "", nil
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("the token for the model registry cannot be read from the file %s; check %s, and what is mounted there", file, envFile)
	}
	return sound(strings.TrimSpace(string(content)), "the file "+file)
}

func sound(token, from string) (string, error) {
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s holds no token; correct it", from)
	}
	return token, nil
}

func (r *registry) String() string { return address.Shown(r.url) }
