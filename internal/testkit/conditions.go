// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// LintOption relaxes the linter for what a kind may say.
type LintOption func(*linter)

// AllowUnready names conditions that may be False or Unknown while Ready is True.
func AllowUnready(types ...string) LintOption { return func(l *linter) { l.unready.add(types) } }

// AllowFlap names reasons that excuse a condition that went back to a status it
// had before, such as the one given while a deleted child is put back.
func AllowFlap(reasons ...string) LintOption { return func(l *linter) { l.flap.add(reasons) } }

// ForeignMessages names conditions whose message is passed on from somebody
// else and need not be a sentence of ours.
func ForeignMessages(types ...string) LintOption { return func(l *linter) { l.foreign.add(types) } }

// SummaryType names the condition that sums up the others; it is Ready unless said.
func SummaryType(name string) LintOption { return func(l *linter) { l.summary = name } }

// KnativeConditions is for kinds with conditions in the manner of Knative: a True
// one needs no reason, the time may be missing, and a severity marks those that do not
// count for Ready. A kind that sets a severity is taken for one by itself.
func KnativeConditions() LintOption { return func(l *linter) { l.knative = true } }

// LintConditions fails the test for every lie in the conditions of an object at
// rest; see Lies.
func LintConditions(t testing.TB, obj runtime.Object, options ...LintOption) {
	t.Helper()
	for _, lie := range Lies(obj, options...) {
		t.Error(lie)
	}
}

// Lies lists what is wrong with the conditions of an object at rest: a summary
// that is True while something is not, or that is about an older generation than the
// object's, and conditions that would not help the person who reads them.
func Lies(obj runtime.Object, options ...LintOption) []string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return []string{fmt.Sprintf("%T cannot be read: %v", obj, err)}
	}
	l := newLinter(options)
	seen := observe(&unstructured.Unstructured{Object: content})
	return append(l.statics(seen), l.stale(seen)...)
}

type set map[string]bool

func (s set) add(names []string) {
	for _, name := range names {
		s[name] = true
	}
}

type linter struct {
	summary                string
	knative                bool
	unready, flap, foreign set
}

func newLinter(options []LintOption) *linter {
	l := &linter{summary: "Ready", unready: set{}, flap: set{}, foreign: set{}}
	for _, option := range options {
		option(l)
	}
	return l
}

// condition is what metav1.Condition and the conditions of Knative have in common.
type condition struct {
	Type, Status, Reason, Message, Severity string
	Transition                              string
	Generation                              int64
	HasGeneration                           bool
}

// observation is what one version of an object says of itself.
type observation struct {
	name          string
	uid, version  string
	generation    int64
	observed      int64
	hasObserved   bool
	hasSeverities bool
	conditions    []condition
}

func observe(obj *unstructured.Unstructured) observation {
	o := observation{
		name: strings.TrimPrefix(fmt.Sprintf("%s %s/%s", obj.GetKind(), obj.GetNamespace(), obj.GetName()), " "),
		uid:  string(obj.GetUID()), version: obj.GetResourceVersion(), generation: obj.GetGeneration(),
	}
	o.observed, o.hasObserved, _ = unstructured.NestedInt64(obj.Object, "status", "observedGeneration")
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, item := range list {
		fields, ok := item.(map[string]any)
		if !ok {
			continue
		}
		text := func(name string) string { s, _ := fields[name].(string); return s }
		c := condition{
			Type: text("type"), Status: text("status"), Reason: text("reason"), Message: text("message"),
			Severity: text("severity"), Transition: text("lastTransitionTime"),
		}
		c.Generation, c.HasGeneration = fields["observedGeneration"].(int64)
		o.hasSeverities = o.hasSeverities || c.Severity != ""
		o.conditions = append(o.conditions, c)
	}
	return o
}

func (o observation) find(conditionType string) (condition, bool) {
	for _, c := range o.conditions {
		if c.Type == conditionType {
			return c, true
		}
	}
	return condition{}, false
}

// lie words a finding about one condition.
func (o observation) lie(c condition, format string, args ...any) string {
	return fmt.Sprintf("%s: condition %s=%s: %s", o.name, c.Type, c.Status, fmt.Sprintf(format, args...))
}

// statics are the findings that hold at any moment, in motion or at rest.
func (l *linter) statics(o observation) (lies []string) {
	knative := l.knative || o.hasSeverities
	seen := set{}
	for _, c := range o.conditions {
		if seen[c.Type] {
			lies = append(lies, o.lie(c, "the type occurs twice"))
		}
		seen[c.Type] = true
		lies = append(lies, form(o, c, knative)...)
		if !l.foreign[c.Type] {
			lies = append(lies, wording(o, c)...)
		}
		if c.HasGeneration && c.Generation > o.generation {
			lies = append(lies, o.lie(c, "observedGeneration %d is ahead of generation %d", c.Generation, o.generation))
		}
	}
	if o.hasObserved && o.observed > o.generation {
		lies = append(lies, fmt.Sprintf("%s: status.observedGeneration %d is ahead of generation %d", o.name, o.observed, o.generation))
	}
	return append(lies, l.contradictions(o)...)
}

var camelCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// form finds what is wrong with the fields other than the message.
func form(o observation, c condition, knative bool) (lies []string) {
	if !camelCase.MatchString(c.Type) {
		lies = append(lies, o.lie(c, "the type is not CamelCase"))
	}
	if c.Status != "True" && c.Status != "False" && c.Status != "Unknown" {
		lies = append(lies, o.lie(c, "the status is none of True, False, Unknown"))
	}
	switch {
	case c.Reason == "" && (!knative || c.Status != "True"):
		lies = append(lies, o.lie(c, "the reason is empty"))
	case c.Reason != "" && !camelCase.MatchString(c.Reason):
		lies = append(lies, o.lie(c, "the reason %q is not CamelCase", c.Reason))
	}
	at, err := time.Parse(time.RFC3339, c.Transition)
	switch {
	case c.Transition == "" && knative:
	case err != nil:
		lies = append(lies, o.lie(c, "lastTransitionTime %q is no time", c.Transition))
	case time.Until(at) > time.Minute:
		lies = append(lies, o.lie(c, "lastTransitionTime %s is in the future", c.Transition))
	}
	return lies
}

// unstable are words that change from one attempt to the next although nothing
// changed for the reader.
var unstable = []struct {
	what    string
	pattern *regexp.Regexp
}{
	{"a timestamp", regexp.MustCompile(`\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}|\b\d{1,2}:\d{2}:\d{2}\b`)},
	{"a resource version", regexp.MustCompile(`(?i)resource ?version|object has been modified`)},
	{"a memory address", regexp.MustCompile(`\b0x[0-9a-f]{8,}\b`)},
}

// wording finds what is wrong with the message. Good news needs none.
func wording(o observation, c condition) (lies []string) {
	if c.Message == "" {
		if c.Status != "True" {
			lies = append(lies, o.lie(c, "no message says what is wrong and what to do"))
		}
		return lies
	}
	if !isSentence(c.Message) {
		lies = append(lies, o.lie(c, "the message is not a sentence: %q", c.Message))
	}
	for _, word := range unstable {
		if word.pattern.MatchString(c.Message) {
			lies = append(lies, o.lie(c, "the message has %s in it: %q", word.what, c.Message))
		}
	}
	return lies
}

// isSentence asks for several words on one line, with a beginning and an end.
func isSentence(message string) bool {
	first, _ := utf8.DecodeRuneInString(message)
	body := strings.TrimRight(message, `"'`+"`"+`)”’`)
	last, _ := utf8.DecodeLastRuneInString(body)
	begins := unicode.IsUpper(first) || unicode.IsDigit(first) || strings.ContainsRune(`"'`+"`“‘", first)
	return begins && strings.ContainsRune(".!?", last) && strings.Contains(message, " ") && !strings.ContainsAny(message, "\n\r\t")
}

// contradictions finds conditions that cannot be true together with the summary.
func (l *linter) contradictions(o observation) (lies []string) {
	summary, ok := o.find(l.summary)
	if !ok || summary.Status != "True" {
		return nil
	}
	for _, c := range o.conditions {
		switch {
		case c.Type == l.summary, l.unready[c.Type], c.Severity == "Info", c.Severity == "Warning":
		case c.Status != "True":
			lies = append(lies, o.lie(c, "%s is True nevertheless", l.summary))
		case c.Type == "Stalled", c.Type == "Reconciling":
			lies = append(lies, o.lie(c, "%s is True at the same time", l.summary))
		}
	}
	return lies
}

// stale finds a summary that is about an older generation. It is a lie only at
// rest: right after a change the controller had no time to look yet.
func (l *linter) stale(o observation) (lies []string) {
	summary, ok := o.find(l.summary)
	if !ok || summary.Status != "True" {
		return nil
	}
	if summary.HasGeneration && summary.Generation < o.generation {
		lies = append(lies, o.lie(summary, "it is about generation %d, and the object is at %d", summary.Generation, o.generation))
	}
	if o.hasObserved && o.observed < o.generation {
		lies = append(lies, o.lie(summary, "status.observedGeneration is %d, and the object is at generation %d", o.observed, o.generation))
	}
	return lies
}
