// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-tools/pkg/crd"
	"sigs.k8s.io/controller-tools/pkg/loader"
)

// row is one line of a table of fields.
type row struct {
	path, kind, defaults, allowed, text string
	required                            bool
	// folded are the fields that the line stands for, when it stands for several.
	folded []string
}

// rule is a CEL rule and where it holds.
type rule struct{ path, expression, message string }

// walker goes through the definition of a kind and its Go type side by side.
type walker struct {
	types *goTypes
	// seen are the structs that have their lines already.
	seen  map[crd.TypeIdent]place
	rows  []row
	rules []rule
}

// place is where a struct has its lines.
type place struct {
	path string
	// mixed is true when there are lines of other structs between them.
	mixed bool
}

func newWalker(types *goTypes) *walker {
	return &walker{types: types, seen: map[crd.TypeIdent]place{}}
}

// object adds a line for every field of a struct. node is the same struct in the definition.
func (w *walker) object(path string, node *apiextensionsv1.JSONSchemaProps, ident crd.TypeIdent) {
	for _, f := range w.types.fields(ident) {
		if f.name == "" {
			w.inlined(path, node, f)
			continue
		}
		prop, ok := node.Properties[f.name]
		if !ok || path == "" && slices.Contains([]string{"apiVersion", "kind", "metadata"}, f.name) {
			continue
		}
		w.field(join(path, f.name), slices.Contains(node.Required, f.name), &prop, f)
	}
}

// inlined adds the fields of a struct that is part of another: line by line the first time, as one line afterwards and
// where the struct is Kubernetes' own.
func (w *walker) inlined(path string, node *apiextensionsv1.JSONSchemaProps, f field) {
	inner, ok := w.types.referred(f.pkg, &f.schema)
	if !ok || inner.Name == "TypeMeta" || inner.Name == "ObjectMeta" {
		return
	}
	names := present(w.types.names(inner), node)
	name, not := foreign(inner)
	first, again := w.seen[inner]
	switch {
	case again:
		w.rows = append(w.rows, row{path: join(path, "*"), kind: name, text: codes(names) + ": as in " + code(first.path) + ".", folded: names})
	case not:
		w.seen[inner] = place{path: path, mixed: true}
		w.rows = append(w.rows, row{path: join(path, "*"), kind: name, text: codes(names) + ".", folded: names})
	default:
		w.seen[inner] = place{path: path, mixed: true}
		w.object(path, node, inner)
	}
}

// field adds the line of a field and, for a struct of ours, the lines of its fields.
func (w *walker) field(path string, required bool, node *apiextensionsv1.JSONSchemaProps, f field) {
	r := row{path: path, required: required, text: oneLine(f.schema.Description), allowed: allowed(node)}
	if r.text == "" {
		r.text = oneLine(node.Description)
	}
	if node.Default != nil {
		r.defaults = string(node.Default.Raw)
	}
	in := w.inside(path, node, f.schema, f.pkg)
	w.rulesOf(path, node, w.theirRules(in))
	if in.node != node {
		w.rulesOf(in.path, in.node, w.theirRules(in))
		if each := allowed(in.node); each != "" {
			r.allowed = strings.TrimPrefix(r.allowed+"; each: "+each, "; ")
		}
	}
	r.kind = in.prefix + in.label()
	w.rows = append(w.rows, r)
	if in.structured {
		w.nested(len(w.rows)-1, in)
	}
}

// nested completes the line of a struct: its fields follow, or the line says where they are described.
func (w *walker) nested(line int, in innermost) {
	r := &w.rows[line]
	first, again := w.seen[in.ident]
	_, not := foreign(in.ident)
	if !again {
		w.seen[in.ident] = place{path: in.path}
	}
	if !again && !not {
		w.object(in.path, in.node, in.ident)
		return
	}
	r.folded = w.types.names(in.ident)
	switch {
	case !again:
		r.text += " Fields: " + codes(r.folded) + "."
	case first.mixed:
		r.text += " Fields: " + codes(r.folded) + ", as in " + code(first.path) + "."
	default:
		r.text += " Fields as in " + code(first.path) + "."
	}
	// Required fields of a type of ours are told where it is described. One that is not ours may be amended.
	if not && len(in.node.Required) > 0 {
		r.text += " Required: " + codes(in.node.Required) + "."
	}
	r.text = strings.TrimSpace(r.text)
}

// rulesOf keeps the rules of a schema, except those that come with a type that is not ours.
func (w *walker) rulesOf(path string, node *apiextensionsv1.JSONSchemaProps, theirs apiextensionsv1.ValidationRules) {
	for _, v := range node.XValidations {
		if !slices.Contains(theirs, v) {
			w.rules = append(w.rules, rule{path: path, expression: v.Rule, message: v.Message})
		}
	}
}

// theirRules are the rules that a type which is not ours brings along.
func (w *walker) theirRules(in innermost) apiextensionsv1.ValidationRules {
	if !in.structured {
		return nil
	}
	if _, not := foreign(in.ident); !not {
		return nil
	}
	return w.types.parser.Schemata[in.ident].XValidations
}

// innermost is what lists and maps of a field hold in the end.
type innermost struct {
	path, prefix string
	node         *apiextensionsv1.JSONSchemaProps
	ident        crd.TypeIdent
	named        bool
	structured   bool
}

// inside follows lists, maps and named types to what they hold.
func (w *walker) inside(path string, node *apiextensionsv1.JSONSchemaProps, s apiextensionsv1.JSONSchemaProps, pkg *loader.Package) innermost {
	in := innermost{path: path, node: node}
	for {
		if ident, ok := w.types.referred(pkg, &s); ok {
			in.ident, in.named, pkg, s = ident, true, ident.Package, w.types.parser.Schemata[ident]
			continue
		}
		switch {
		case in.node.Items != nil && in.node.Items.Schema != nil:
			in.path, in.prefix, in.node = in.path+"[]", in.prefix+"list of ", in.node.Items.Schema
			s = itemOf(s)
		case in.node.AdditionalProperties != nil && in.node.AdditionalProperties.Schema != nil:
			in.path, in.prefix, in.node = in.path+"{}", in.prefix+"map of ", in.node.AdditionalProperties.Schema
			s = itemOf(s)
		default:
			in.structured = in.named && len(w.types.fields(in.ident)) > 0 && in.node.Type == "object"
			return in
		}
		in.named = false
	}
}

// itemOf returns what a list or map holds according to its Go type.
func itemOf(s apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	switch {
	case s.Items != nil && s.Items.Schema != nil:
		return *s.Items.Schema
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return *s.AdditionalProperties.Schema
	}
	return apiextensionsv1.JSONSchemaProps{}
}

// label says in words of which type the innermost value is.
func (in innermost) label() string {
	if in.structured {
		if name, not := foreign(in.ident); not {
			return name
		}
		return "object"
	}
	switch {
	case in.named && in.ident.Name == "Quantity":
		return "quantity"
	case in.node.XIntOrString:
		return "integer or string"
	case in.node.Format == "date-time":
		return "time"
	case in.node.Type == "":
		return "any"
	case in.node.Type == "object" && in.node.XPreserveUnknownFields != nil && len(in.node.Properties) == 0:
		return "any object"
	}
	return in.node.Type
}

// present keeps the names that the definition has.
func present(names []string, node *apiextensionsv1.JSONSchemaProps) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, ok := node.Properties[name]
		return !ok
	})
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
