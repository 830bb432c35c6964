// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"text/template"
	"text/template/parse"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The ways in which requests find their model by a header.
const (
	RoutingEnabled  = "enabled"
	RoutingForced   = "forced"
	RoutingDisabled = "disabled"
)

var (
	urlScheme = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*$`)
	port      = regexp.MustCompile(`:[0-9]{1,5}$`)
)

func checkIngress(c *checker, v *Ingress, given object) {
	checkGateways(c, v, given)
	checkDomains(c, v)
	checkTemplates(c, v, given)
	if !urlScheme.MatchString(v.URLScheme) {
		c.fault("urlScheme", "%s is no scheme; write http or https", quote(v.URLScheme))
	}
	if v.IngressClassName != nil {
		c.objectName("ingressClassName", *v.IngressClassName)
	}
	if len(validation.IsHTTPHeaderName(v.ModelBasedRoutingHeaderName)) > 0 {
		c.fault("modelBasedRoutingHeaderName", "%s is no name of an HTTP header", quote(v.ModelBasedRoutingHeaderName))
	}
	for i, pattern := range v.AllowedAnnotations {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			c.fault(fmt.Sprintf("allowedAnnotations[%d]", i), "%s is no name of an annotation; write it whole, or with a star at its end",
				quote(pattern))
		}
	}
	v.ModelBasedRoutingMode = strings.ToLower(v.ModelBasedRoutingMode)
	c.oneOf("modelBasedRoutingMode", v.ModelBasedRoutingMode, RoutingEnabled, RoutingForced, RoutingDisabled)
}

func checkGateways(c *checker, v *Ingress, given object) {
	if !given.has("ingressGateway") {
		c.fault("ingressGateway", "is missing; write the namespace/name of the Istio gateway, for example %q, even if none "+
			"is used", Default().Ingress.IngressGateway)
	}
	if !given.has("knativeLocalGatewayService") {
		v.KnativeLocalGatewayService = v.LocalGatewayService
	}
	if !v.EnableGatewayAPI {
		return
	}
	namespace, name, ok := strings.Cut(v.KServeIngressGateway, "/")
	switch {
	case !given.has("kserveIngressGateway"):
		c.fault("kserveIngressGateway", "is missing although enableGatewayApi is true; write the namespace/name of a Gateway")
	case !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Label(name)) > 0:
		c.fault("kserveIngressGateway", "%s does not name a Gateway; write its namespace/name, each of lower-case letters, "+
			"digits and dashes", quote(v.KServeIngressGateway))
	}
}

func checkDomains(c *checker, v *Ingress) {
	if len(validation.IsDNS1123Subdomain(port.ReplaceAllString(v.IngressDomain, ""))) > 0 {
		c.fault("ingressDomain", "%s is no domain name", quote(v.IngressDomain))
	}
	for i, domain := range v.AdditionalIngressDomains {
		if len(validation.IsDNS1123Subdomain(domain)) > 0 {
			c.fault(fmt.Sprintf("additionalIngressDomains[%d]", i), "%s is no domain name", quote(domain))
		}
	}
}

// hostData and pathData are what templates may speak of.
type (
	hostData struct {
		Name, Namespace, IngressDomain string
		Annotations, Labels            map[string]string
	}
	pathData struct{ Name, Namespace string }
)

func checkTemplates(c *checker, v *Ingress, given object) {
	data := hostData{Name: "name", Namespace: "namespace", IngressDomain: v.IngressDomain}
	if _, err := tryTemplate(v.DomainTemplate, data); err != nil {
		c.fault("domainTemplate", "cannot be used: %v; write for example %q", err, defaultDomainTemplate)
	}
	if v.PathTemplate == "" {
		return
	}
	if !given.has("ingressDomain") {
		c.fault("ingressDomain", "is missing although pathTemplate is set; write the host under which paths are served")
	}
	rendered, err := tryTemplate(v.PathTemplate, pathData{Name: "name", Namespace: "namespace"})
	if err != nil {
		c.fault("pathTemplate", "cannot be used: %v; write for example %q", err, "/serving/{{ .Namespace }}/{{ .Name }}")
		return
	}
	if u, err := url.Parse(rendered); err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(rendered, "/") {
		c.fault("pathTemplate", "gives %s, which is no path; let it begin with a slash", quote(rendered))
	}
}

// errLoop is why loops are refused: a host or path is put together from values, and a loop could run without end.
var errLoop = errors.New("it has a loop or calls another template")

// tryTemplate renders a template for a service that could exist, since a wrong field shows only then.
func tryTemplate(text string, data any) (string, error) {
	t, err := template.New("template").Parse(text)
	if err != nil {
		return "", plain(err)
	}
	if len(t.Templates()) > 1 || t.Tree == nil || loops(t.Root) {
		return "", errLoop
	}
	var out bounded
	if err := t.Execute(&out, data); err != nil {
		return "", plain(err)
	}
	return out.String(), nil
}

// longestRendered is far more than any host or path may have.
const longestRendered = 4096

// bounded stops a template that renders without end.
type bounded struct{ strings.Builder }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > longestRendered {
		return 0, errors.New("the result is too long")
	}
	return b.Builder.Write(p)
}

// plain is the last part of a template error, which says what is wrong; the rest repeats the template.
func plain(err error) error {
	text := strings.ToValidUTF8(strings.TrimPrefix(err.Error(), "template: "), "")
	if len(text) > 4*longestQuote {
		text = strings.ToValidUTF8(text[:4*longestQuote], "") + "…"
	}
	return errors.New(text)
}

func loops(node parse.Node) bool {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return false
		}
		for _, child := range n.Nodes {
			if loops(child) {
				return true
			}
		}
	case *parse.IfNode:
		return loops(n.List) || loops(n.ElseList)
	case *parse.WithNode:
		return loops(n.List) || loops(n.ElseList)
	case *parse.RangeNode, *parse.TemplateNode:
		return true
	}
	return false
}
