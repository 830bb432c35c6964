// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// handedOn are patterns of names of headers that every step gets.
type handedOn []*regexp.Regexp

// never are headers that belong to one connection or to how a body travels on it.
var never = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// Patterns are made when they are needed: other programs of the same binary need none.
var wildcard = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\w-]*(?:\*[\w-]*)*$`) })

// readHeaders reads patterns that are separated by commas. A pattern is for the whole name, and case does not matter: a
// name, a name with stars, or a regular expression; one that has ^ or $ says itself where it begins and ends. What cannot
// be read is left out and told of, and nothing at all matches nothing.
func readHeaders(list string) (handedOn, []error) {
	var out handedOn
	var wrong []error
	for _, pattern := range split(list) {
		if pattern == "" {
			continue
		}
		expression := "(?i)^(?:" + pattern + ")$"
		switch {
		case wildcard().MatchString(pattern):
			expression = "(?i)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$"
		case strings.HasPrefix(pattern, "^") || strings.HasSuffix(pattern, "$"):
			expression = "(?i)" + pattern
		}
		compiled, err := regexp.Compile(expression)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("PROPAGATE_HEADERS: %q is neither a name of a header, nor one with stars, nor a regular expression", pattern))
			continue
		}
		out = append(out, compiled)
	}
	return out, wrong
}

// split cuts at commas that stand in no bracket.
func split(list string) []string {
	var out []string
	depth, from := 0, 0
	for i := 0; i < len(list); i++ {
		switch list[i] {
		case '\\':
			i++
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(depth-1, 0)
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(list[from:i]))
				from = i + 1
			}
		}
	}
	return append(out, strings.TrimSpace(list[from:]))
}

// of are the headers that steps get for a request that has these.
func (h handedOn) of(request http.Header) http.Header {
	out := http.Header{}
	own := namedIn(request.Values("Connection"))
	for name, values := range request {
		if h.match(name) && !slices.Contains(never, name) && !slices.Contains(own, name) {
			out[name] = slices.Clone(values)
		}
	}
	if out.Get("Content-Type") == "" {
		out.Set("Content-Type", "application/json")
	}
	return out
}

// namedIn are the headers that a client says are for this connection only.
func namedIn(lists []string) []string {
	var out []string
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			out = append(out, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return out
}

func (h handedOn) match(name string) bool {
	return slices.ContainsFunc(h, func(pattern *regexp.Regexp) bool { return pattern.MatchString(name) })
}
