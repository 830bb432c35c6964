// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/internal/kube/address"
)

// longest bounds what others said, in bytes.
const longest = 500

// passing matches what is different each time that the same thing happens: times, ids, addresses.
var passing = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b\d{4}[-/]\d{2}[-/]\d{2}[T ]\d{2}:\d{2}:\d{2}([.,]\d+)?( ?(Z|UTC|[+-]\d{2}:?\d{2})\b)?:? ?`), ""},
	{regexp.MustCompile(`\b[IWEF]\d{4} \d{2}:\d{2}:\d{2}\.\d+ +\d+ `), ""},
	{regexp.MustCompile(`\b\d{2}:\d{2}:\d{2}([.,]\d+)?\b:? ?`), ""},
	{regexp.MustCompile(`(?i)\b[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\b`), "…"},
	{regexp.MustCompile(`(?i)\b0x[0-9a-f]+\b`), "0x…"},
	{regexp.MustCompile(`(?i)\b[0-9a-f]{32,64}\b`), "…"},
	{regexp.MustCompile(` ?\(pod: [^()]*(\([^()]*\))?[^()]*\)`), ""},
	{regexp.MustCompile(`(?m)^\[\] ?`), ""},
}

// confidential matches what programs say although they should not.
var confidential = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)(\bbearer +)[\w.~+/=-]+`), "$1…"},
	{regexp.MustCompile(`(?i)(["']?\b[\w-]*(?:password|passwd|secret|token|credential|api[_-]?key|access[_-]?key|authorization)[\w-]*["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;&]+)`), "$1…"},
}

// traceback begins what Python says of an error; the error itself is the first line after it that is not indented.
var traceback = regexp.MustCompile(`Traceback \(most recent call last\):[^\n]*\n(?:[ \t]+[^\n]*\n)*`)

// Hide leaves passwords, tokens and keys out of what a program said, for messages that are not made by [Of].
func Hide(text string) string {
	text = address.Hide(text)
	for _, s := range confidential {
		text = s.pattern.ReplaceAllString(text, s.instead)
	}
	return text
}

// words makes what a program or a kubelet said fit for a message: one line, printable, bounded, and the same each time
// and in each replica.
func words(text string, p *corev1.Pod) string {
	text = strings.ToValidUTF8(text, "")
	// Bounded before the patterns run over it; a kubelet cuts at a few KiB, others may not.
	text = ending(text, 16*longest)
	if p != nil {
		for _, own := range []string{string(p.UID), p.Name, p.Status.PodIP} {
			text = without(text, own)
		}
	}
	for _, s := range passing {
		text = s.pattern.ReplaceAllString(text, s.instead)
	}
	text = Hide(text)
	text = withoutUsage(text)
	if at := traceback.FindAllStringIndex(text, -1); len(at) > 0 {
		if raised := text[at[len(at)-1][1]:]; strings.TrimSpace(raised) != "" {
			return beginning(oneLine(raised), longest)
		}
	}
	if i := firstIndex(text, "panic: ", "fatal error: "); i >= 0 {
		// Of a Go program the first line says it; the stack that follows would crowd it out.
		return beginning(oneLine(text[i:]), longest)
	}
	return ending(oneLine(text), longest)
}

var (
	// usage begins what a program says of itself when it was called wrongly, in the ways of argparse, click, cobra and Go.
	usage = regexp.MustCompile(`(?i)^usage( of [^:]*)?:`)
	// option is a line of it, found also where its beginning was cut off.
	option = regexp.MustCompile(`^\s+-{1,2}[A-Za-z][\w-]*([ ,=\t].*)?$`)
	// heading is a line between options.
	heading = regexp.MustCompile(`^[A-Za-z][A-Za-z ]*:$|^(Try|Use|Run) ['"].*(--help|-h)\b`)
)

// withoutUsage leaves out the list of all options that a program prints before or after the one thing that is wrong.
func withoutUsage(text string) string {
	lines, kept, skips := strings.Split(text, "\n"), []string(nil), false
	for _, line := range lines {
		switch {
		case usage.MatchString(line), option.MatchString(line):
			skips = true
			continue
		case skips && (strings.TrimSpace(line) == "" || line[0] == ' ' || line[0] == '\t' || heading.MatchString(line)):
			continue
		}
		skips = false
		kept = append(kept, line)
	}
	if left := strings.Join(kept, "\n"); strings.TrimSpace(left) != "" {
		return left
	}
	return text
}

// without hides a name where it stands alone, not where it is part of a word.
func without(text, name string) string {
	if name == "" {
		return text
	}
	var out strings.Builder
	from := 0
	for {
		at := strings.Index(text[from:], name)
		if at < 0 {
			out.WriteString(text[from:])
			return out.String()
		}
		begin, end := from+at, from+at+len(name)
		out.WriteString(text[from:begin])
		before, _ := utf8.DecodeLastRuneInString(text[:begin])
		next, _ := utf8.DecodeRuneInString(text[end:])
		if inName(before) || inName(next) {
			out.WriteString(name)
		} else {
			out.WriteString(more)
		}
		from = end
	}
}

func inName(r rune) bool {
	return r == '-' || r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// oneLine joins lines and leaves out what cannot be shown.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return -1
	}, text)
	return strings.Join(strings.Fields(text), " ")
}

const more = "…"

// ending keeps the end of a text: of a log, that is where the error stands.
func ending(s string, most int) string {
	if len(s) <= most {
		return s
	}
	s = s[len(s)-most+len(more):]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return more + s
}

func beginning(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len(more)], "") + more
}

func firstIndex(text string, parts ...string) int {
	first := -1
	for _, part := range parts {
		if i := strings.Index(text, part); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	return first
}

// sentence ends a text with a full stop, and says so when there is none.
func sentence(text string) string {
	switch {
	case text == "":
		return "no reason is given."
	case strings.HasSuffix(text, "."), strings.HasSuffix(text, "!"), strings.HasSuffix(text, "?"), strings.HasSuffix(text, more):
		return text
	}
	return text + "."
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func quoted(s string) string { return strconv.Quote(beginning(strings.ToValidUTF8(s, ""), longest)) }

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// reasonShape is what the API server takes for the reason of a condition, without the punctuation that it also takes.
var reasonShape = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,127}$`)

// reasonOr takes a foreign word as a reason if it can be one.
func reasonOr(word, instead string) string {
	if reasonShape.MatchString(word) {
		return word
	}
	return instead
}

// innermost is the end of a chain of wrapped errors of a container runtime, which names the program.
func innermost(text string) string {
	if i := strings.LastIndex(text, "exec: "); i >= 0 {
		return strings.TrimSuffix(text[i:], ": unknown")
	}
	return text
}
