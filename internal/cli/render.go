// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/engine"
)

// render prints decisions so that a person can read them and kubectl can apply
// them: children are documents, everything else is comments.
func render(out io.Writer, decisions []*planned) error {
	var b bytes.Buffer
	for i, d := range decisions {
		if i > 0 {
			b.WriteString("---\n")
		}
		d.summary(&b)
		for _, child := range d.Children {
			text, err := yaml.Marshal(child.Object)
			if err != nil {
				return err
			}
			b.WriteString("---\n")
			b.Write(text)
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}

const (
	outputYAML = "yaml"
	outputJSON = "json"
)

// print says what was decided, and what was only looked at.
func (d *decisions) print(out io.Writer, format string) error {
	if format == outputJSON {
		return d.json(out)
	}
	if err := render(out, d.made); err != nil || len(d.skipped) == 0 {
		return err
	}
	var b bytes.Buffer
	b.WriteString("---\n")
	comment(&b, "only looked at: %s", strings.Join(d.skipped, ", "))
	_, err := out.Write(b.Bytes())
	return err
}

// answer is one decision for programs.
type answer struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Name       string           `json:"name"`
	Verdict    string           `json:"verdict"`
	Warnings   []string         `json:"warnings,omitempty"`
	Status     map[string]any   `json:"status,omitempty"`
	Events     []engine.Event   `json:"events,omitempty"`
	Calls      []string         `json:"calls,omitempty"`
	Children   []map[string]any `json:"children,omitempty"`
}

func (d *decisions) json(out io.Writer) error {
	said := struct {
		Objects []answer `json:"objects"`
		Skipped []string `json:"skipped,omitempty"`
	}{Objects: []answer{}, Skipped: d.skipped}
	for _, m := range d.made {
		a := answer{APIVersion: m.gvk.GroupVersion().String(), Kind: m.gvk.Kind, Name: nameOf(m.object), Verdict: m.verdict(),
			Warnings: m.warnings, Status: m.Status, Events: m.told(), Calls: m.calls()}
		for _, child := range m.Children {
			a.Children = append(a.Children, child.Object)
		}
		said.Objects = append(said.Objects, a)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(said)
}

// told are the events, also the last one. What is wrong with an object that has no status is said in them as well.
func (d *planned) told() []engine.Event {
	if d.DeleteSelf != nil {
		return []engine.Event{*d.DeleteSelf}
	}
	if d.Problem != nil && d.Status == nil {
		return slices.Concat([]engine.Event{{Warning: true, Reason: d.Problem.Reason, Message: d.Problem.Message}}, d.Events)
	}
	return d.Events
}

func (d *planned) summary(b *bytes.Buffer) {
	comment(b, "%s %s: %s", d.gvk.Kind, nameOf(d.object), d.verdict())
	for _, w := range d.warnings {
		comment(b, "warning: %s", w)
	}
	for _, c := range d.Conditions {
		comment(b, "condition %s=%s (%s) %s", c.Type, c.Status, c.Reason, c.Message)
	}
	d.status(b)
	for _, e := range d.told() {
		comment(b, "event %s: %s", e.Reason, e.Message)
	}
	for _, call := range d.calls() {
		comment(b, "call %s", call)
	}
}

// calls are what other systems would be asked to do, in the words of whoever asks.
func (d *planned) calls() []string {
	var out []string
	for _, c := range d.Calls {
		out = append(out, fmt.Sprintf("%s: %v", c.Name, c.Request))
	}
	return out
}

// status prints what the status says besides conditions.
func (d *planned) status(b *bytes.Buffer) {
	rest := maps.Clone(d.Status)
	delete(rest, "conditions")
	if len(rest) == 0 {
		return
	}
	text, err := yaml.Marshal(map[string]any{"status": rest})
	if err != nil {
		return // it was decoded from JSON
	}
	for line := range strings.Lines(string(text)) {
		b.WriteString("# " + line)
	}
}

func (d *planned) verdict() string {
	switch {
	case !d.decided:
		return "accepted; nothing is made of it"
	case d.DeleteSelf != nil:
		return "would be deleted"
	case d.KeepChildren:
		return "accepted; its children are left as they are"
	case len(d.Children) == 1:
		return "1 child"
	}
	return fmt.Sprintf("%d children", len(d.Children))
}

func nameOf(o metav1.Object) string {
	name := o.GetName()
	if name == "" {
		name = o.GetGenerateName() + "*"
	}
	if ns := o.GetNamespace(); ns != "" {
		return ns + "/" + name
	}
	return name
}

// comment writes one comment line, whatever the text holds.
func comment(b *bytes.Buffer, format string, args ...any) {
	line := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	b.WriteString("# " + line + "\n")
}
