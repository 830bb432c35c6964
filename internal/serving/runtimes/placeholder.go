// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

const (
	// maxTemplate bounds a text with placeholders, maxRendered what all texts of
	// a predictor come to: more would not fit into an object anyway.
	maxTemplate = 64 << 10
	maxRendered = 1 << 20
)

// metadata is what placeholders can name. Fields that change without the user
// doing anything are left out, since they would replace the pods each time.
type metadata struct {
	Name, GenerateName, Namespace string
	UID                           types.UID
	Generation                    int64
	Labels, Annotations           map[string]string
}

// strictness tells what happens to braces that are no placeholder of ours.
type strictness bool

const (
	// strict refuses them: in the containers that always had placeholders.
	strict strictness = true
	// lenient leaves them, since sidecars may well have a syntax of their own.
	lenient strictness = false
)

// renderer fills in the placeholders of one predictor.
type renderer struct {
	data metadata
	left int
}

func newRenderer(isvc *v1beta1.InferenceService, model *v1beta1.ModelSpec, labels map[string]string) *renderer {
	r := &renderer{left: maxRendered, data: metadata{
		Name:         isvc.Name,
		GenerateName: isvc.GenerateName,
		Namespace:    isvc.Namespace,
		UID:          isvc.UID,
		Generation:   isvc.Generation,
		Labels:       isvc.Labels,
		Annotations:  isvc.Annotations,
	}}
	if len(labels) > 0 {
		r.data.Labels = withAll(isvc.Labels, labels)
	}
	if _, ok := isvc.Annotations[v1beta1.AnnotationModelFormat]; !ok {
		r.data.Annotations = withAll(isvc.Annotations, map[string]string{v1beta1.AnnotationModelFormat: model.ModelFormat.Name})
	}
	return r
}

func withAll(m, more map[string]string) map[string]string {
	out := make(map[string]string, len(m)+len(more))
	maps.Copy(out, m)
	maps.Copy(out, more)
	return out
}

// container fills in all texts of a container in place.
func (r *renderer) container(c *corev1.Container, rt *Runtime, how strictness) *Failure {
	name := c.Name
	if u := r.walk(reflect.ValueOf(c).Elem(), how); u != nil {
		return invalid("%s of container %s, from %s or spec.predictor: %v.", strings.TrimPrefix(u.path, "."), clip(name), rt, u.err)
	}
	return nil
}

// unrendered is a text that could not be filled in. The path grows on the way
// up, so that it costs nothing as long as all goes well.
type unrendered struct {
	path string
	err  error
}

func (r *renderer) walk(v reflect.Value, how strictness) *unrendered {
	switch v.Kind() {
	case reflect.String:
		s := v.String()
		if !strings.Contains(s, "{{") {
			return nil
		}
		text, err := r.text(s, how)
		if err != nil {
			return &unrendered{err: err}
		}
		v.SetString(text)
	case reflect.Pointer:
		if !v.IsNil() {
			return r.walk(v.Elem(), how)
		}
	case reflect.Slice:
		for i := range v.Len() {
			if u := r.walk(v.Index(i), how); u != nil {
				u.path = fmt.Sprintf("[%d]%s", i, u.path)
				return u
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Field(i).CanSet() {
				continue
			}
			if u := r.walk(v.Field(i), how); u != nil {
				u.path = wireName(v.Type().Field(i)) + u.path
				return u
			}
		}
	}
	return nil
}

// wireName is how a field is called in a manifest; nothing for one that is
// inlined.
func wireName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" {
		return ""
	}
	return "." + name
}

// text fills in one text.
func (r *renderer) text(s string, how strictness) (string, error) {
	if len(s) > maxTemplate {
		return "", fmt.Errorf("a text with placeholders may have %d bytes, this has %d: shorten it", maxTemplate, len(s))
	}
	t, err := parsed(s)
	if err != nil {
		if how == lenient {
			return s, nil
		}
		return "", err
	}
	out := limited{left: r.left}
	if err := t.Execute(&out, r.data); err != nil {
		return "", executed(err)
	}
	r.left = out.left
	return out.text.String(), nil
}

// parsed reads a text and refuses all that a placeholder is not for.
func parsed(s string) (*template.Template, error) {
	t, err := template.New("").Option("missingkey=error").Funcs(template.FuncMap{"index": entry}).Parse(s)
	if err != nil {
		_, reason, found := strings.Cut(err.Error(), ": ")
		if _, after, ok := strings.Cut(reason, ": "); found && ok {
			reason = after
		}
		return nil, fmt.Errorf("not a valid placeholder: %s (braces that are none are written {{\"{{\"}})", clip(reason))
	}
	if len(t.Templates()) > 1 || t.Tree == nil {
		return nil, errors.New("placeholders cannot define templates: write out what is meant")
	}
	return t, allowed(t.Root)
}

// entry looks a key up that cannot be written with a dot. Unlike the function of
// the same name in the library it does not pass over a missing one.
func entry(m map[string]string, key string) (string, error) {
	v, ok := m[key]
	if !ok {
		return "", fmt.Errorf("map has no entry for key %q", key)
	}
	return v, nil
}

// functions that no input can make expensive.
var functions = []string{"index", "and", "or", "not", "len", "slice", "eq", "ne", "lt", "le", "gt", "ge"}

// allowed accepts values, conditions and comparisons. Loops and nested templates
// could be made to run for ever by whoever may write a service.
func allowed(n parse.Node) error {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		return allAllowed(n.Nodes)
	case *parse.TextNode, *parse.CommentNode, *parse.StringNode, *parse.NumberNode, *parse.BoolNode:
		return nil
	case *parse.ActionNode:
		return allowed(n.Pipe)
	case *parse.IfNode:
		return allAllowed([]parse.Node{n.Pipe, n.List, n.ElseList})
	case *parse.PipeNode:
		if len(n.Decl) > 0 {
			break
		}
		return allAllowed(n.Cmds)
	case *parse.CommandNode:
		return allAllowed(n.Args)
	case *parse.IdentifierNode:
		if !slices.Contains(functions, n.Ident) {
			return fmt.Errorf("function %s is not there for placeholders, only %s", clip(n.Ident), strings.Join(functions, ", "))
		}
		return nil
	case *parse.FieldNode:
		return known(n.Ident)
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			return known(n.Ident[1:])
		}
	}
	return fmt.Errorf("{{%s}} is more than a placeholder can do: use values such as {{.Name}} and conditions", clip(n.String()))
}

func allAllowed[N parse.Node](nodes []N) error {
	for _, n := range nodes {
		if err := allowed(n); err != nil {
			return err
		}
	}
	return nil
}

// known refuses names that are not in the metadata.
func known(path []string) error {
	if _, ok := reflect.TypeFor[metadata]().FieldByName(path[0]); ok {
		return nil
	}
	return fmt.Errorf("there is no {{.%s}}: placeholders know .Name, .Namespace, .Labels, .Annotations, .UID and .Generation",
		clip(strings.Join(path, ".")))
}

// executed turns what the library says into what the user can act on.
func executed(err error) error {
	if errors.Is(err, errTooLong) {
		return errTooLong
	}
	text := err.Error()
	_, rest, ok := strings.Cut(text, " at <")
	i := strings.LastIndex(rest, ">: ")
	if !ok || i < 0 {
		return errors.New(clip(text))
	}
	placeholder, reason := clip(rest[:i]), strings.TrimPrefix(rest[i+3:], "error calling index: ")
	if strings.HasPrefix(reason, "map has no entry") {
		return fmt.Errorf("placeholder {{%s}} has no value: add that label or annotation to the InferenceService, or change the text", placeholder)
	}
	return fmt.Errorf("placeholder {{%s}}: %s", placeholder, clip(reason))
}

var errTooLong = fmt.Errorf("with its placeholders filled in the predictor exceeds %d bytes: shorten the texts", maxRendered)

// limited collects text up to a limit.
type limited struct {
	text strings.Builder
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errTooLong
	}
	l.left -= len(p)
	return l.text.Write(p)
}
