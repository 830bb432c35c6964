// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Look is how a terminal wants it.
type Look struct {
	Colour bool
	// ASCII is for terminals and logs that know no more.
	ASCII bool
}

// Text is the report for a person. What comes from the cluster cannot change
// how it looks: control characters are taken out.
func (r *Report) Text(out io.Writer, look Look) error {
	p := &printer{look: look, report: r}
	p.header()
	switch {
	case len(r.Children) > 0:
		p.heading("Children")
		p.tree(r.Children)
	case !r.childless && len(r.Unread) > 0:
		p.heading("Children")
		p.line("  none that could be read")
	case !r.childless:
		p.heading("Children")
		p.line("  none")
	}
	if len(r.Uses) > 0 {
		p.heading("Uses")
		p.tree(r.Uses)
	}
	p.warnings()
	p.notes()
	p.why()
	if len(r.Commands) > 0 {
		p.heading("Next")
		for _, c := range r.Commands {
			p.line("  " + clean(c))
		}
	}
	if len(r.Unread) > 0 {
		p.heading("Not looked at")
		for _, u := range r.Unread {
			p.line("  " + clean(u))
		}
	}
	_, err := io.WriteString(out, p.text.String())
	return err
}

type printer struct {
	look   Look
	report *Report
	text   strings.Builder
}

// line prints one line in the letters that the terminal knows.
func (p *printer) line(s string) {
	s = strings.TrimRight(s, " ")
	if p.look.ASCII {
		s = ascii(s)
	}
	p.text.WriteString(s + "\n")
}

func (p *printer) heading(s string) { p.line(""); p.line(p.colour(bold, s)) }

func (p *printer) header() {
	r := p.report
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	health, verdict := Failing, "not ready"
	switch {
	case r.Ready:
		health, verdict = Well, "ready"
	case r.Cause != nil && (r.Cause.Status == "Unknown" || r.Cause.Reason == reasonNotLookedAt || r.Cause.Reason == reasonBehind):
		health, verdict = Pending, "not ready yet"
	}
	if r.unservedYet {
		verdict = fmt.Sprintf("generation %d not served", r.Generation)
	}
	if r.Since != nil && (r.Cause == nil || r.Cause.Source == FromCondition) {
		verdict += fmt.Sprintf(" for %s (since %s)", duration.HumanDuration(r.now.Sub(r.Since.Time)), r.Since.UTC().Format(time.RFC3339))
	}
	p.line(p.colour(bold, clean(r.Kind+" "+name)) + "  " + p.mark(health) + " " + verdict)
	facts := r.Facts
	if r.ObservedGeneration > 0 && r.ObservedGeneration < r.Generation && !r.unservedYet {
		facts = append(facts[:len(facts):len(facts)], Fact{Name: "seen", Value: fmt.Sprintf(
			"generation %d of %d: the manager has not looked at your last change yet", r.ObservedGeneration, r.Generation)})
	}
	width := 0
	for _, f := range facts {
		width = max(width, utf8.RuneCountInString(f.Name))
	}
	for _, f := range facts {
		p.line("  " + pad(f.Name, width) + "  " + clean(f.Value))
	}
}

// row is a line of the tree before its columns are aligned.
type row struct{ name, state, health string }

func (p *printer) tree(nodes []Node) {
	var rows []row
	for i := range nodes {
		rows = append(rows, p.rows(&nodes[i], "", "")...)
	}
	names, states := 0, 0
	for _, r := range rows {
		names = max(names, utf8.RuneCountInString(r.name))
		states = max(states, utf8.RuneCountInString(r.state))
	}
	for _, r := range rows {
		p.line("  " + pad(r.name, names) + "  " + pad(r.state, states) + "  " + r.health)
	}
}

// rows are the lines of a node and of what is beneath it.
func (p *printer) rows(n *Node, first, rest string) []row {
	name := n.Name
	if n.Namespace != "" {
		name = n.Namespace + "/" + name
	}
	out := []row{{clean(first + n.Kind + " " + name), clean(n.State), strings.TrimSpace(p.mark(n.Health) + " " + clean(n.Reason))}}
	for i := range n.Nodes {
		if i == len(n.Nodes)-1 && n.More == 0 {
			out = append(out, p.rows(&n.Nodes[i], rest+"└─ ", rest+"   ")...)
			continue
		}
		out = append(out, p.rows(&n.Nodes[i], rest+"├─ ", rest+"│  ")...)
	}
	if n.More > 0 {
		out = append(out, row{rest + "└─ " + fmt.Sprintf("%d more", n.More), fmt.Sprintf("%d of them ready", n.MoreReady), ""})
	}
	return out
}

func (p *printer) warnings() {
	if len(p.report.Warnings) == 0 {
		return
	}
	p.heading("Warnings")
	for _, w := range p.report.Warnings {
		often := ""
		if w.Count > 1 {
			often = fmt.Sprintf(" (%d times)", w.Count)
		}
		p.line(fmt.Sprintf("  %s ago%s  %s %s  %s", duration.HumanDuration(p.report.now.Sub(w.Last.Time)), often, clean(w.Kind), clean(w.Name), clean(w.Reason)))
		p.wrapped("      ", w.Message)
	}
}

func (p *printer) notes() {
	if len(p.report.Notes) == 0 {
		return
	}
	p.heading("Note")
	for _, n := range p.report.Notes {
		p.wrapped("  ", n)
	}
}

func (p *printer) why() {
	c := p.report.Cause
	if c == nil {
		return
	}
	p.heading("Why")
	title := c.Reason
	if c.Condition != "" {
		title = (&condition{typ: c.Condition, status: c.Status, reason: c.Reason}).sentence()
	}
	if c.Pod != "" {
		title = strings.TrimSuffix(title, ".") + ", in pod " + c.Pod
	}
	p.line("  " + clean(title))
	p.wrapped("  ", c.Message)
}

// lineWidth is where sentences are broken.
const lineWidth = 100

// wrapped prints a sentence in lines that are no longer than they need be.
func (p *printer) wrapped(indent, text string) {
	line := ""
	for word := range strings.FieldsSeq(clean(clip(text, 1500))) {
		if line != "" && utf8.RuneCountInString(indent+line+" "+word) > lineWidth {
			p.line(indent + line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	p.line(indent + line)
}

// Colours of a terminal.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (p *printer) colour(code, s string) string {
	if !p.look.Colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// mark stands for a health.
func (p *printer) mark(h Health) string {
	switch h {
	case Well:
		return p.colour(green, "✓")
	case Pending:
		return p.colour(yellow, "…")
	case Failing:
		return p.colour(red, "✗")
	}
	return ""
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// clean takes out what would steer a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
}

// plain are our own letters for those who have no others; they are as wide.
var plain = strings.NewReplacer("✓", "+", "✗", "x", "├─", "|-", "└─", "`-", "│", "|", "…", "~", "“", `"`, "”", `"`)

func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return '?'
		}
		return r
	}, plain.Replace(s))
}
