// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"strings"

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

func (d *planned) summary(b *bytes.Buffer) {
	comment(b, "%s %s: %s", d.gvk.Kind, d.name(), d.verdict())
	for _, w := range d.warnings {
		comment(b, "warning: %s", w)
	}
	for _, c := range d.Conditions {
		comment(b, "condition %s=%s (%s) %s", c.Type, c.Status, c.Reason, c.Message)
	}
	d.status(b)
	events := d.Events
	if d.DeleteSelf != nil {
		events = []engine.Event{*d.DeleteSelf}
	}
	for _, e := range events {
		comment(b, "event %s: %s", e.Reason, e.Message)
	}
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

func (d *planned) name() string {
	name := d.object.GetName()
	if name == "" {
		name = d.object.GetGenerateName() + "*"
	}
	if ns := d.object.GetNamespace(); ns != "" {
		return ns + "/" + name
	}
	return name
}

// comment writes one comment line, whatever the text holds.
func comment(b *bytes.Buffer, format string, args ...any) {
	line := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	b.WriteString("# " + line + "\n")
}
