// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/internal/kube/address"
)

// Settings are what the platform says of links. They hold for the life of the process.
type Settings struct {
	// Off takes finalizers off and does nothing else.
	Off bool
	// Namespace is where the platform has its registries: only those, and those of a service's own namespace, are told
	// of it, and only those may see the manager's token. Empty: any may be told, and none may see it.
	Namespace string
	// URLs are further registries that may be told and see the token.
	URLs []string
	// TokenFile holds the token, and CAFiles certificates to trust beside the system's; what is not there is left out.
	TokenFile string
	CAFiles   []string
	// SkipVerify trusts any certificate. Nobody is shown the token then.
	SkipVerify bool
}

// Environment variables that settings are taken from, most of them in the names that installations have.
const (
	EnvController = "INFERENCE_SERVICE_CONTROLLER"
	EnvNamespace  = "REGISTRIES_NAMESPACE"
	EnvURLs       = "MODEL_REGISTRY_URLS"
	EnvTokenFile  = "MODEL_REGISTRY_TOKEN_FILE"
	EnvCAFile     = "MODEL_REGISTRY_CA_FILE"
	EnvSkipVerify = "SKIP_TLS_VERIFY"

	managed = "managed"
	account = "/var/run/secrets/kubernetes.io/serviceaccount/"
)

// FromEnv reads the settings of a manager.
func FromEnv(getenv func(string) string) Settings {
	s := Settings{
		Off:        getenv(EnvController) != "" && getenv(EnvController) != managed,
		Namespace:  getenv(EnvNamespace),
		TokenFile:  getenv(EnvTokenFile),
		CAFiles:    []string{account + "service-ca.crt"}, // that of Services on OpenShift
		SkipVerify: getenv(EnvSkipVerify) == "true",
		URLs:       strings.FieldsFunc(getenv(EnvURLs), func(r rune) bool { return r == ',' || r == ' ' }),
	}
	if s.TokenFile == "" {
		s.TokenFile = account + "token"
	}
	if file := getenv(EnvCAFile); file != "" {
		s.CAFiles = append(s.CAFiles, file)
	}
	return s
}

// Registry is one that may be called.
type Registry struct {
	// URL without the path of the API.
	URL string
	// Name is what people know it by.
	Name string
	// Trusted registries see the manager's token.
	Trusted bool
	// Roots are certificates that count for this one besides those that count for all.
	Roots string
}

// problem is why no registry can be told.
type problem struct{ reason, message string }

func why(reason, format string, args ...any) *problem {
	return &problem{reason, fmt.Sprintf(format, args...)}
}

// Reasons of the condition.
const (
	reasonLinked    = "Linked"
	reasonLinking   = "Linking"
	reasonMissing   = "RegistryMissing"
	reasonAmbiguous = "RegistryAmbiguous"
	reasonRefused   = "RegistryNotAllowed"
	reasonPortless  = "RegistryWithoutPort"
	reasonFailed    = "RegistryFailed"
	reasonLeft      = "LeftInRegistry"
)

// find decides which registry a service means.
func (s Settings) find(w wish, namespace string, known []corev1.Service) (Registry, *problem) {
	known = slices.DeleteFunc(slices.Clone(known), func(svc corev1.Service) bool { return !s.allowed(svc, namespace) })
	slices.SortFunc(known, func(a, b corev1.Service) int { return strings.Compare(nameOf(a), nameOf(b)) })
	if w.url != "" {
		return s.byURL(w, known)
	}
	fit := slices.DeleteFunc(slices.Clone(known), func(svc corev1.Service) bool {
		return w.name != "" && svc.Name != w.name || w.namespace != "" && svc.Namespace != w.namespace
	})
	if len(fit) > 1 {
		if home := slices.DeleteFunc(slices.Clone(fit), func(svc corev1.Service) bool { return !s.platforms(svc) }); len(home) > 0 {
			fit = home
		}
	}
	switch len(fit) {
	case 1:
		return s.registryOf(fit[0])
	case 0:
		return Registry{}, why(reasonMissing, "There is no model registry%s%s: a Service with the label component=model-registry. Create it, or correct the "+
			"labels %sname and %snamespace.", named(" with the name ", w.name), s.where(w, namespace), w.family, w.family)
	}
	return Registry{}, why(reasonAmbiguous, "There are %d model registries, such as %s and %s. Say which one is meant with the labels %sname and %snamespace.",
		len(fit), nameOf(fit[0]), nameOf(fit[1]), w.family, w.family)
}

func named(words, name string) string {
	if name == "" {
		return ""
	}
	return words + name
}

// where says in which namespaces registries were looked for.
func (s Settings) where(w wish, own string) string {
	switch {
	case w.namespace != "" && (s.Namespace == "" || w.namespace == s.Namespace || w.namespace == own):
		return " in the namespace " + w.namespace
	case s.Namespace != "" && s.Namespace != own:
		return " in the namespaces " + s.Namespace + " and " + own + ", which are those that the platform allows"
	}
	return ""
}

// allowed tells whether services of a namespace may be told to a registry. One that leads elsewhere by a name of its
// owner's choice is no registry of the cluster.
func (s Settings) allowed(svc corev1.Service, namespace string) bool {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	return s.Namespace == "" || s.platforms(svc) || svc.Namespace == namespace
}

// platforms tells whether a registry is where the platform has its own.
func (s Settings) platforms(svc corev1.Service) bool {
	return s.Namespace != "" && svc.Namespace == s.Namespace
}

func nameOf(svc corev1.Service) string { return svc.Namespace + "/" + svc.Name }

// registryOf finds the way to a Service; a port with TLS comes first.
func (s Settings) registryOf(svc corev1.Service) (Registry, *problem) {
	for _, way := range []struct{ port, scheme string }{{"https-api", "https"}, {"http-api", "http"}} {
		for _, p := range svc.Spec.Ports {
			if p.Name == way.port {
				host := net.JoinHostPort(svc.Name+"."+svc.Namespace+".svc", strconv.Itoa(int(p.Port)))
				return Registry{URL: way.scheme + "://" + host, Name: nameOf(svc), Trusted: s.platforms(svc)}, nil
			}
		}
	}
	return Registry{}, why(reasonPortless, "Service %s of the model registry has no port named https-api or http-api. Name its port so.", nameOf(svc))
}

// externals are the annotations in which a registry says how it is reached from outside.
var externals = []string{"routing.kubeflow.org/external-address-rest", "routing.opendatahub.io/external-address-rest"}

// byURL takes an address only where the platform knows it: anybody may write one on a service, and the manager would
// call it from inside the cluster.
func (s Settings) byURL(w wish, known []corev1.Service) (Registry, *problem) {
	asked, err := normal(w.url)
	if err != nil {
		return Registry{}, why(reasonRefused, "The annotation %surl is no address of a model registry. Write HOST:PORT or https://HOST, or remove it.", w.family)
	}
	for _, listed := range s.URLs {
		if u, err := normal(listed); err == nil && u == asked {
			return Registry{URL: asked, Name: address.Shown(asked), Trusted: true}, nil
		}
	}
	for _, svc := range known {
		if r, p := s.registryOf(svc); p == nil && r.URL == asked || inside(svc, asked) {
			return r, p
		}
		for _, name := range externals {
			if u, err := normal(svc.Annotations[name]); s.platforms(svc) && err == nil && u == asked {
				return Registry{URL: asked, Name: nameOf(svc), Trusted: true}, nil
			}
		}
	}
	return Registry{}, why(reasonRefused, "The annotation %surl names %s, which is no model registry that the platform knows, and is not called. Have it "+
		"listed in modelregistry.link.urls of the installation, or name a Service with the labels %sname and %snamespace.",
		w.family, address.Shown(asked), w.family, w.family)
}

// inside tells whether an address is one of a Service in another spelling.
func inside(svc corev1.Service, asked string) bool {
	u, err := url.Parse(asked)
	if err != nil || u.Path != "" {
		return false
	}
	host := svc.Name + "." + svc.Namespace
	at := u.Hostname() == host || u.Hostname() == host+".svc" || u.Hostname() == host+".svc.cluster.local"
	return at && slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
		return strconv.Itoa(int(p.Port)) == u.Port() && (p.Name == "https-api" || p.Name == "http-api")
	})
}

// normal is an address in the one form in which addresses are compared.
func normal(text string) (string, error) {
	if text = strings.TrimSpace(text); text == "" {
		return "", fmt.Errorf("it is empty")
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("it is no address of a server")
	}
	host := strings.ToLower(u.Host)
	if u.Port() == map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		host = strings.TrimSuffix(host, ":"+u.Port())
	}
	return u.Scheme + "://" + host + strings.TrimRight(u.EscapedPath(), "/"), nil
}
