// SPDX-License-Identifier: Apache-2.0

package enforce

import "strings"

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

// manages are beginnings of paths that routes lead to the API of keys, models and subscriptions, and nowhere else. What is
// added here is not charged: a path that another route could lead to a model does not belong here.
var manages = [][]string{{"maas-api"}, {"v1", "models"}, {"v1", "subscriptions"}, {"v1", "api-keys"}}

// placeOf tells where a path leads, and which model it names: "<namespace>/<name>", or nothing.
func placeOf(method, path string) (where place, model string) {
	path, _, _ = strings.Cut(path, "?")
	if !isPlain(path) {
		return unclear, ""
	}
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	if method == "GET" && path == "/maas-api/health" {
		return open, ""
	}
	for i, part := range parts {
		if part == "internal" && (i == 0 || i == 1 && parts[0] == "maas-api") {
			return internal, ""
		}
	}
	for _, beginning := range manages {
		if begins(parts, beginning) {
			return among(!strings.Contains(path, "//"), management), ""
		}
	}
	if len(parts) >= 2 && parts[0] != "v1" {
		model = parts[0] + "/" + parts[1]
		if rest, ok := strings.CutPrefix(path, "/"+model); !ok || rest != "" && rest[0] != '/' {
			return unclear, "" // routes compare characters, and would take it for something else
		}
	}
	if n := len(parts); n >= 2 && parts[n-2] == "v1" && parts[n-1] == "models" {
		return listing, model
	}
	return inference, model
}

func among(plain bool, p place) place {
	if plain {
		return p
	}
	return unclear
}

func begins(parts, beginning []string) bool {
	if len(parts) < len(beginning) {
		return false
	}
	for i, b := range beginning {
		if parts[i] != b {
			return false
		}
	}
	return true
}

// isPlain tells that all who read a path read the same: it has no dots to resolve, and no slashes in disguise.
func isPlain(path string) bool {
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "\\#;") {
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
