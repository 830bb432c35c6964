// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"strings"
	"text/template/parse"

	"github.com/modelplane/modelplane/internal/config"
)

// Claims are the addresses that a service takes requests at: its hosts, and its path on the host that all services
// share. A service that is not to be reached from outside has none.
func Claims(s Service, cfg *config.Config) ([]string, error) {
	if ClusterLocal(s, cfg) || cfg.Ingress.DisableIngressCreation {
		return nil, nil
	}
	h, err := hostsOf(s, cfg)
	if err != nil {
		return nil, err
	}
	out := append([]string{h.top, h.predictor}, h.more...)
	if s.Transformer != nil {
		out = append(out, h.transformer)
	}
	if s.Explainer != nil {
		out = append(out, h.explainer)
	}
	if !byPath(cfg) {
		return out, nil
	}
	path, err := pathFor(s.Name, s.Namespace, cfg)
	if err != nil {
		return nil, err
	}
	return append(out, cfg.Ingress.IngressDomain+path), nil
}

func byPath(cfg *config.Config) bool {
	return cfg.Ingress.EnableGatewayAPI && cfg.Ingress.PathTemplate != ""
}

// shape is what two services have in common that get the same address from a template: iris in eu-prod and iris-eu in
// prod both become iris-eu-prod.
type shape string

const (
	nameThenNamespace shape = "name-namespace:"
	namespaceThenName shape = "namespace-name:"
	nameAlone         shape = "name:"
	// anyShape is that of a template which lets services clash that have nothing in common.
	anyShape shape = ""
)

// key of a service or component. Services that clash have the same one; others may have it too.
func (s shape) key(name, namespace string) string {
	switch s {
	case nameThenNamespace:
		name += namespace
	case namespaceThenName:
		name = namespace + name
	}
	return strings.ReplaceAll(name, "-", "")
}

// ClashIndex has the values by which a service is found by others that may want the same address. They do not depend on
// the configuration, which may change.
func ClashIndex(name, namespace string) []string {
	var out []string
	for _, s := range []shape{nameThenNamespace, namespaceThenName, nameAlone} {
		out = append(out, string(s)+s.key(name, namespace))
	}
	return out
}

// Components of other services take hosts too.
var componentSuffixes = []string{"predictor", "transformer", "explainer"}

// ClashQueries are the values of ClashIndex that services have which may want an address of this one. It says no when
// the templates are such that every service may.
func ClashQueries(s Service, cfg *config.Config) (values []string, ok bool) {
	texts := []string{cfg.Ingress.DomainTemplate}
	if byPath(cfg) {
		texts = append(texts, cfg.Ingress.PathTemplate)
	}
	names := []string{s.Name, s.Name + "-predictor"}
	if s.Transformer != nil {
		names = append(names, s.Name+"-transformer")
	}
	if s.Explainer != nil {
		names = append(names, s.Name+"-explainer")
	}
	seen := map[string]bool{}
	for _, text := range texts {
		shape := shapeOf(text)
		if shape == anyShape {
			return nil, false
		}
		for _, name := range names {
			for _, key := range withoutSuffixes(shape.key(name, s.Namespace)) {
				if value := string(shape) + key; !seen[value] {
					seen[value] = true
					values = append(values, value)
				}
			}
		}
	}
	return values, true
}

// withoutSuffixes is a key and what it becomes when the name of a component is taken out of it, at each place where it
// may be one: it can be the key of another service's component, which is indexed without.
func withoutSuffixes(key string) []string {
	out := []string{key}
	for _, suffix := range componentSuffixes {
		for at := range key {
			if strings.HasPrefix(key[at:], suffix) {
				out = append(out, key[:at]+key[at+len(suffix):])
			}
		}
	}
	return out
}

// shapeOf reads a template that is made of text and the service's name and namespace, each once at most and with nothing
// but separators between them. Others can make the same of anything.
func shapeOf(text string) shape {
	t, err := parsed(text)
	if err != nil || t.Tree == nil {
		return anyShape
	}
	order, between := "", ""
	for _, node := range t.Root.Nodes {
		field := plainField(node)
		switch n := node.(type) {
		case *parse.TextNode:
			between += string(n.Text)
			continue
		case *parse.ActionNode:
		default:
			return anyShape
		}
		switch field {
		case "Name", "Namespace":
			if order != "" && strings.Trim(between, "-./") != "" {
				return anyShape
			}
			order, between = order+field+" ", ""
		case "IngressDomain":
			between += field
		default:
			return anyShape
		}
	}
	switch order {
	case "Name Namespace ":
		return nameThenNamespace
	case "Namespace Name ":
		return namespaceThenName
	case "Name ":
		return nameAlone
	}
	return anyShape
}

// plainField is the field that an action prints as it is, or nothing.
func plainField(node parse.Node) string {
	action, ok := node.(*parse.ActionNode)
	if !ok || len(action.Pipe.Decl) > 0 || len(action.Pipe.Cmds) != 1 || len(action.Pipe.Cmds[0].Args) != 1 {
		return ""
	}
	field, ok := action.Pipe.Cmds[0].Args[0].(*parse.FieldNode)
	if !ok || len(field.Ident) != 1 {
		return ""
	}
	return field.Ident[0]
}
