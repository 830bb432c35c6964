// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/template"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/activation"
)

// hosts are the names under which a service is reached from outside.
type hosts struct {
	top, predictor, transformer, explainer string
	// more names of the top host, one for each additional domain that fits.
	more []string
	// refused says which additional domains do not fit, and why.
	refused []string
}

func hostsOf(s Service, cfg *config.Config) (hosts, error) {
	predictor := s.PredictorHostName
	if predictor == "" {
		predictor = s.Name + "-predictor"
	}
	var h hosts
	wanted := []struct {
		name string
		into *string
		need bool
	}{
		{s.Name, &h.top, true},
		{predictor, &h.predictor, true},
		{s.Name + "-transformer", &h.transformer, s.Transformer != nil},
		{s.Name + "-explainer", &h.explainer, s.Explainer != nil},
	}
	for _, w := range wanted {
		if !w.need {
			continue
		}
		host, err := hostFor(w.name, s, cfg)
		if err != nil {
			return hosts{}, err
		}
		*w.into = host
	}
	h.more, h.refused = additionalHosts(h.top, []string{cfg.Ingress.IngressDomain}, cfg,
		"Use .IngressDomain at the end of domainTemplate in inferenceservice-config.")
	if len(h.more) >= mostHosts {
		h.refused = append(h.refused, fmt.Sprintf("Of ingress.additionalIngressDomains those after %q are left out, because a service has at most %d hosts. "+
			"Remove some in inferenceservice-config.", h.more[mostHosts-2], mostHosts))
		h.more = h.more[:mostHosts-1]
	}
	return h, nil
}

const (
	// mostHosts is how many a service has of its own at most. Each sixteen take an HTTPRoute.
	mostHosts = activation.MostHosts - 2
	// hostsPerRoute is how many an HTTPRoute may have; the API server refuses one with more.
	hostsPerRoute = 16
)

// domainData and pathData are what templates know; other names in them are mistakes.
type (
	domainData struct {
		Name, Namespace, IngressDomain string
		Annotations, Labels            map[string]string
	}
	pathData struct{ Name, Namespace string }
)

// hostFor renders the platform's domain template for one name of a service.
func hostFor(name string, s Service, cfg *config.Config) (string, error) {
	text := cfg.Ingress.DomainTemplate
	host, err := render(text, domainData{
		Name: name, Namespace: s.Namespace, IngressDomain: cfg.Ingress.IngressDomain,
		Annotations: s.Annotations, Labels: s.Labels,
	})
	if err != nil {
		return "", fmt.Errorf("ingress.domainTemplate %q in inferenceservice-config cannot be used for %s/%s: %w. "+
			"It knows .Name, .Namespace, .IngressDomain, .Annotations and .Labels", text, s.Namespace, name, err)
	}
	if why := notAHost(host); why != "" {
		return "", fmt.Errorf("ingress.domainTemplate %q in inferenceservice-config makes %q of %s/%s, which is no host name: %s. "+
			"Change domainTemplate (a dot instead of a dash between its parts allows longer names), or the name of the service or its namespace",
			text, host, s.Namespace, name, why)
	}
	return host, nil
}

// notAHost says in words why a name cannot be a host, or nothing.
func notAHost(host string) string {
	switch labels := strings.Split(host, "."); {
	case host == "":
		return "it is empty"
	case strings.Contains(host, "<no value>"): // what a template makes of a missing entry
		return "an annotation or label that the template uses is missing"
	case len(host) > validation.DNS1123SubdomainMaxLength:
		return fmt.Sprintf("it has %d characters, and %d are allowed", len(host), validation.DNS1123SubdomainMaxLength)
	case len(labels) < 2:
		return "it has no dot"
	default:
		for _, label := range labels {
			if len(label) > validation.DNS1123LabelMaxLength {
				return fmt.Sprintf("%q has %d characters, and %d are allowed between dots", label, len(label), validation.DNS1123LabelMaxLength)
			}
			if len(validation.IsDNS1123Label(label)) > 0 {
				return fmt.Sprintf("%q is not made of lower-case letters and digits with dashes inside", label)
			}
		}
	}
	return ""
}

// additionalHosts puts every additional domain in the place of the domain that a host ends in. advice is for the case
// that it ends in none of those given.
func additionalHosts(host string, domains []string, cfg *config.Config, advice string) (more, refused []string) {
	additional := cfg.Ingress.AdditionalIngressDomains
	if len(additional) == 0 {
		return nil, nil
	}
	sub := ""
	for _, domain := range domains {
		if rest, found := strings.CutSuffix(host, domain); found && domain != "" {
			sub = rest
			break
		}
	}
	if sub == "" {
		known := "no domain is known"
		if len(domains) > 0 {
			known = "that host does not end in " + strings.Join(domains, " or ")
		}
		return nil, []string{fmt.Sprintf("ingress.additionalIngressDomains has no effect on %s, because %s. %s", host, known, advice)}
	}
	for _, domain := range additional {
		name := sub + domain
		switch {
		case len(validation.IsDNS1123Subdomain(name)) > 0:
			refused = append(refused, fmt.Sprintf("%q in ingress.additionalIngressDomains is left out, because %q is no host name. "+
				"Correct or remove it in inferenceservice-config.", domain, name))
		case name != host && !slices.Contains(more, name):
			more = append(more, name)
		}
	}
	return more, refused
}

// plainPath is what every gateway takes literally.
var plainPath = regexp.MustCompile(`^(/[-A-Za-z0-9._~!$&'()*+,;=:@]+)+$`)

// pathFor renders the platform's path template, without a slash at its end.
func pathFor(name, namespace string, cfg *config.Config) (string, error) {
	text := cfg.Ingress.PathTemplate
	raw, err := render(text, pathData{Name: name, Namespace: namespace})
	if err != nil {
		return "", fmt.Errorf("ingress.pathTemplate %q in inferenceservice-config cannot be used for %s/%s: %w. "+
			"It knows .Name and .Namespace", text, namespace, name, err)
	}
	if u, err := url.ParseRequestURI(raw); err != nil || u.Scheme != "" || u.Host != "" || u.RawQuery != "" {
		return "", badPath(text, raw, name, namespace, "it has to start with a slash and hold neither scheme, host nor query")
	}
	clean := strings.TrimSuffix(raw, "/")
	switch {
	case clean == "":
		return "", badPath(text, raw, name, namespace, "the service would take every request to "+cfg.Ingress.IngressDomain)
	case !plainPath.MatchString(clean) || path.Clean(clean) != clean:
		return "", badPath(text, raw, name, namespace, "it may not hold empty, . or .. parts, nor characters that need escaping")
	}
	return clean, nil
}

func badPath(text, raw, name, namespace, why string) error {
	return fmt.Errorf("ingress.pathTemplate %q in inferenceservice-config makes %q of %s/%s, which is no usable path: %s. "+
		"Use something like /serving/{{ .Namespace }}/{{ .Name }}", text, raw, namespace, name, why)
}

// templates remembers parsed templates by their text. There are two at a time, so few are kept.
var templates = struct {
	sync.Mutex
	parsed map[string]*template.Template
}{parsed: map[string]*template.Template{}}

const maxTemplates = 16

func render(text string, data any) (string, error) {
	t, err := parsed(text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if err := t.Execute(&out, data); err != nil {
		return "", err
	}
	return out.String(), nil
}

func parsed(text string) (*template.Template, error) {
	templates.Lock()
	defer templates.Unlock()
	if t, ok := templates.parsed[text]; ok {
		return t, nil
	}
	t, err := template.New("template").Parse(text)
	if err != nil {
		return nil, err
	}
	if len(templates.parsed) >= maxTemplates {
		clear(templates.parsed)
	}
	templates.parsed[text] = t
	return t, nil
}
