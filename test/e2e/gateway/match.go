// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// table is everything that routes say, the most specific first.
type table []entry

// entry is one match of one rule for one host.
type entry struct {
	route *gatewayv1.HTTPRoute
	rule  *gatewayv1.HTTPRouteRule
	host  string // empty: any
	path  path
	match gatewayv1.HTTPRouteMatch
}

// path is a compiled match of paths.
type path struct {
	kind  gatewayv1.PathMatchType
	value string
	regex *regexp.Regexp
}

// newTable orders by what the Gateway API says: the host that says more, then the path, then the headers, then the
// older route. Rules that say as much as each other stay in their order.
func newTable(routes []*gatewayv1.HTTPRoute) (table, error) {
	routes = slices.Clone(routes)
	slices.SortStableFunc(routes, func(a, b *gatewayv1.HTTPRoute) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	var all table
	for _, route := range routes {
		entries, err := entriesOf(route)
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
	}
	slices.SortStableFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(hostWeight(b.host), hostWeight(a.host)), cmp.Compare(b.path.weight(), a.path.weight()),
			cmp.Compare(len(b.match.Headers), len(a.match.Headers)))
	})
	return all, nil
}

func entriesOf(route *gatewayv1.HTTPRoute) (table, error) {
	var out table
	hosts := []string{""}
	if len(route.Spec.Hostnames) > 0 {
		hosts = nil
	}
	for _, host := range route.Spec.Hostnames {
		hosts = append(hosts, string(host))
	}
	for i := range route.Spec.Rules {
		rule := &route.Spec.Rules[i]
		matches := rule.Matches
		if len(matches) == 0 {
			matches = []gatewayv1.HTTPRouteMatch{{}}
		}
		for _, match := range matches {
			p, err := newPath(match.Path)
			if err != nil {
				return nil, err
			}
			for _, host := range hosts {
				out = append(out, entry{route: route, rule: rule, host: host, path: p, match: match})
			}
		}
	}
	return out, nil
}

func newPath(m *gatewayv1.HTTPPathMatch) (path, error) {
	p := path{kind: gatewayv1.PathMatchPathPrefix, value: "/"}
	if m != nil {
		p.kind, p.value = ptr.Deref(m.Type, p.kind), ptr.Deref(m.Value, p.value)
	}
	var err error
	if p.kind == gatewayv1.PathMatchRegularExpression {
		p.regex, err = regexp.Compile(`^(?:` + p.value + `)$`)
	}
	return p, err
}

// weight puts exact paths before prefixes, and long prefixes before short ones. Where patterns stand is left to the
// gateway; here they are last.
func (p path) weight() int {
	switch p.kind {
	case gatewayv1.PathMatchExact:
		return 1 << 20
	case gatewayv1.PathMatchPathPrefix:
		return len(p.value)
	}
	return 0
}

func (p path) covers(asked string) bool {
	switch p.kind {
	case gatewayv1.PathMatchExact:
		return asked == p.value
	case gatewayv1.PathMatchPathPrefix:
		prefix := strings.TrimSuffix(p.value, "/")
		return asked == prefix || strings.HasPrefix(asked, prefix+"/")
	}
	return p.regex.MatchString(asked)
}

// hostWeight puts whole names before those with a star, and all before none.
func hostWeight(host string) int {
	switch {
	case host == "":
		return 0
	case strings.HasPrefix(host, "*"):
		return len(host)
	}
	return 1<<20 + len(host)
}

func hostCovers(pattern, host string) bool {
	if rest, wild := strings.CutPrefix(pattern, "*"); wild {
		return len(host) > len(rest) && strings.HasSuffix(host, rest)
	}
	return pattern == "" || pattern == host
}

// find is the first entry that a request fits.
func (t table) find(r *http.Request) (entry, bool) {
	host := strings.ToLower(r.Host)
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	i := slices.IndexFunc(t, func(e entry) bool {
		return hostCovers(e.host, host) && e.path.covers(r.URL.Path) && headersFit(e.match.Headers, r.Header) &&
			(e.match.Method == nil || string(*e.match.Method) == r.Method)
	})
	if i < 0 {
		return entry{}, false
	}
	return t[i], true
}

func headersFit(wanted []gatewayv1.HTTPHeaderMatch, have http.Header) bool {
	for _, w := range wanted {
		value := have.Get(string(w.Name))
		if ptr.Deref(w.Type, gatewayv1.HeaderMatchExact) == gatewayv1.HeaderMatchExact {
			if value != w.Value {
				return false
			}
			continue
		}
		if ok, err := regexp.MatchString(w.Value, value); err != nil || !ok {
			return false
		}
	}
	return true
}

// choose draws a backend by weight. There is none when all weights are zero.
func choose(refs []gatewayv1.HTTPBackendRef) (gatewayv1.HTTPBackendRef, bool) {
	total := int32(0)
	for _, ref := range refs {
		total += ptr.Deref(ref.Weight, 1)
	}
	if total == 0 {
		return gatewayv1.HTTPBackendRef{}, false
	}
	drawn := rand.Int32N(total)
	for _, ref := range refs {
		if drawn -= ptr.Deref(ref.Weight, 1); drawn < 0 {
			return ref, true
		}
	}
	return gatewayv1.HTTPBackendRef{}, false
}

// alter does to a request what filters say.
func (e entry) alter(out *http.Request) {
	for _, filter := range e.rule.Filters {
		if m := filter.RequestHeaderModifier; m != nil {
			for _, h := range m.Set {
				out.Header.Set(string(h.Name), h.Value)
			}
			for _, h := range m.Add {
				out.Header.Add(string(h.Name), h.Value)
			}
			for _, name := range m.Remove {
				out.Header.Del(name)
			}
		}
		if u := filter.URLRewrite; u != nil {
			if u.Hostname != nil {
				out.Host = string(*u.Hostname)
			}
			e.rewrite(out, u.Path)
		}
	}
}

func (e entry) rewrite(out *http.Request, to *gatewayv1.HTTPPathModifier) {
	if to == nil {
		return
	}
	out.URL.RawPath = ""
	switch to.Type {
	case gatewayv1.FullPathHTTPPathModifier:
		out.URL.Path = ptr.Deref(to.ReplaceFullPath, "/")
	case gatewayv1.PrefixMatchHTTPPathModifier:
		rest := strings.TrimPrefix(out.URL.Path, strings.TrimSuffix(e.path.value, "/"))
		out.URL.Path = "/" + strings.TrimPrefix(strings.TrimSuffix(ptr.Deref(to.ReplacePrefixMatch, "/"), "/")+rest, "/")
	}
}
