// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
)

// condition is a path of gjson. It holds for a text in which the path leads to something, whatever that is.
type condition struct {
	path string
	// doubt is why it may not mean what it says.
	doubt string
}

// compared is the form that the API describes, { .a.b == "c" }, which as a path would hold always.
var compared = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`^\{\s*\.([\w-]+(?:\[\d+\]|\.[\w-]+)*)\s*(==|!=|<=|>=|<|>|!%|%)\s*("(?:[^"\\]|\\.)*"|'[^'"\\]*'|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)\s*\}$`)
})

var index = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\[(\d+)\]`) })

// readCondition takes the form that the API describes for what it says, and everything else for a path.
func readCondition(text string) condition {
	if parts := compared().FindStringSubmatch(text); parts != nil {
		path, operator, value := index().ReplaceAllString(parts[1], ".$1"), parts[2], parts[3]
		if strings.HasPrefix(value, "'") {
			value = `"` + value[1:len(value)-1] + `"`
		}
		return condition{path: "[@this].#(" + path + operator + value + ")"}
	}
	c := condition{path: text}
	trimmed := strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(trimmed, "{") && strings.HasSuffix(trimmed, "}"), strings.HasPrefix(trimmed, "[") && strings.HasSuffix(trimmed, "]"):
		c.doubt = `always holds: it is a value and no path; write { .a == 1 } or [@this].#(a==1)`
	case strings.HasSuffix(trimmed, ")#"):
		c.doubt = "holds whenever there is such a list, whatever is in it; leave out the # at the end"
	}
	return c
}

// copies is how often a body exists at most while a condition is tried, besides itself.
const copies = 2

// met tries the condition on valid JSON.
func (c condition) met(body []byte) bool { return gjson.GetBytes(body, c.path).Exists() }

// part is what a path leads to, as it stands there; nil if that is nothing. It wants valid JSON.
func part(body []byte, path string) []byte {
	found := gjson.GetBytes(body, path)
	if !found.Exists() {
		return nil
	}
	return []byte(found.Raw)
}

// instancesOf makes the request of what a model has answered: a list of predictions becomes one of instances. Everything
// else stays what it is.
func instancesOf(body []byte) []byte {
	if !isObject(body) {
		return body
	}
	predictions := gjson.GetBytes(body, "predictions")
	if !predictions.IsArray() || predictions.Get("#").Int() == 0 {
		return body
	}
	out := make([]byte, 0, len(predictions.Raw)+len(`{"instances":}`))
	out = append(out, `{"instances":`...)
	out = append(out, predictions.Raw...)
	return append(out, '}')
}

// isObject tells whether a text is a JSON object. Texts that are nested too deeply are none, which keeps whoever walks
// through them safe.
func isObject(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) && json.Valid(body)
}
