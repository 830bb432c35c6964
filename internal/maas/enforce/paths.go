// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"net/http"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
)

// place is what a path leads to.
type place int

const (
	unclear    place = iota // two readers could take it for different things
	open                    // everybody may
	internal                // nobody may from outside
	management              // who may is asked, nothing is counted
	listing                 // of a model: all is asked but the quota
	inference
)

// prefix is before paths of the API that older clients ask for.
const prefix = "/maas-api"

// own are the requests that the API of keys, models and subscriptions answers, each as it is written; * stands for one segment.
// They are not charged, so that nothing belongs here but what routes lead to that API and nowhere else: whatever is below or beside
// these paths is a request for a model.
var own = []struct{ methods, path string }{
	{"GET HEAD", "/v1/models"},
	{"GET HEAD", "/v1/subscriptions"},
	{"GET HEAD", "/v1/model/*/subscriptions"},
	{"GET HEAD", "/v1/usage"},
	{"POST", "/v1/api-keys"},
	{"POST", "/v1/api-keys/search"},
	{"POST", "/v1/api-keys/bulk-revoke"},
	{"GET HEAD DELETE", "/v1/api-keys/*"},
}

// isOwn tells whether the API answers a request, by either of its paths.
func isOwn(method, path string) bool {
	for _, o := range own {
		if slices.Contains(strings.Fields(o.methods), method) && (fits(o.path, path) || fits(prefix+o.path, path)) {
			return true
		}
	}
	return false
}

// fits compares character by character, as routes do.
func fits(pattern, path string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return false
	}
	for i, w := range want {
		if w != have[i] && (w != "*" || have[i] == "") {
			return false
		}
	}
	return true
}

// placeOf tells where a path leads, and which model it names: "<namespace>/<name>", or nothing.
func placeOf(method, path string) (where place, model string) {
	path, _, _ = strings.Cut(path, "?")
	if !isPlain(path) {
		return unclear, ""
	}
	if method == http.MethodGet && path == prefix+"/health" {
		return open, ""
	}
	if isOwn(method, path) {
		return management, ""
	}
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	for i, part := range parts {
		if part == "internal" && (i == 0 || i == 1 && "/"+parts[0] == prefix) {
			return internal, ""
		}
	}
	if model = exchange.PathModel(path); model == "" {
		return inference, ""
	}
	if rest, ok := strings.CutPrefix(path, "/"+model); !ok || rest != "" && rest[0] != '/' {
		return unclear, "" // routes compare characters, and would take it for something else
	}
	if fits("/*/*/v1/models", path) && (method == http.MethodGet || method == http.MethodHead) {
		return listing, model
	}
	return inference, model
}

// isPlain tells that all who read a path read the same: it has no dots to resolve, and no slashes in disguise.
func isPlain(path string) bool {
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "\\#;") {
		return false
	}
	if strings.Contains(path, "//") {
		return false
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return false
		}
	}
	for i := range len(path) {
		if path[i] <= ' ' || path[i] >= 0x7f {
			return false
		}
	}
	folded := strings.ToLower(path)
	for _, disguise := range []string{"%2e", "%2f", "%5c", "%25", "%00"} {
		if strings.Contains(folded, disguise) {
			return false
		}
	}
	return true
}
