// SPDX-License-Identifier: Apache-2.0

package batcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Request is what a client asks for: instances, and fields beside them that hold for all of them.
type Request struct {
	Instances []json.RawMessage
	// beside is the other fields as they stand in an object, each after a comma, sorted.
	beside string
}

var (
	errForm = errors.New("can't Unmarshal body")
	errNone = errors.New("no instances in the request")
)

// Decode reads a request. Instances are kept as they were written.
func Decode(body []byte) (*Request, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return nil, errForm
	}
	var r Request
	if raw, ok := fields["instances"]; ok {
		if json.Unmarshal(raw, &r.Instances) != nil {
			return nil, errForm
		}
		delete(fields, "instances")
	}
	if len(r.Instances) == 0 {
		return nil, errNone
	}
	var err error
	r.beside, err = besides(fields)
	return &r, err
}

// besides writes fields so that equal ones are equal texts.
func besides(fields map[string]json.RawMessage) (string, error) {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		quoted, err := json.Marshal(name)
		if err != nil {
			return "", errForm
		}
		out.WriteByte(',')
		out.Write(quoted)
		out.WriteByte(':')
		if json.Compact(&out, fields[name]) != nil {
			return "", errForm
		}
	}
	return out.String(), nil
}

// merge is the request for all of them. They have the same fields beside their instances.
func merge(requests []*Request) []byte {
	var out bytes.Buffer
	out.WriteString(`{"instances":[`)
	first := true
	for _, r := range requests {
		for _, instance := range r.Instances {
			if !first {
				out.WriteByte(',')
			}
			first = false
			out.Write(instance)
		}
	}
	out.WriteByte(']')
	out.WriteString(requests[0].beside)
	out.WriteByte('}')
	return out.Bytes()
}

// Headers that tell one request from another and mean nothing to a model: traces, ids, who handed it on, how it was packed.
// Requests that differ in any other header are not put together.
var (
	passing = []string{
		"Accept-Encoding", "B3", "Baggage", "Ce-Id", "Ce-Time", "Connection", "Content-Length", "Date", "Forwarded", "Keep-Alive", "Te",
		"Traceparent", "Tracestate", "Uber-Trace-Id", "User-Agent", "Via", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "X-Correlation-Id",
		"X-Real-Ip", "X-Request-Id", "X-Request-Start",
		// Others of these say who the client is (X-Forwarded-User, X-Forwarded-Client-Cert), in whose name nobody else may ask.
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Proto", "X-Forwarded-Scheme", "X-Forwarded-Server",
	}
	passingPrefixes = []string{"X-B3-", "X-Datadog-", "X-Envoy-", "X-Ot-", "X-Istio-", "X-K-", "K-"}
)

func passes(name string) bool {
	return slices.Contains(passing, name) || slices.ContainsFunc(passingPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// keyOf is the same for requests that may go together.
func keyOf(req *http.Request, asked *Request) string {
	var out strings.Builder
	line := func(parts ...string) {
		for _, p := range parts {
			out.WriteString(p)
			out.WriteByte(0)
		}
		out.WriteByte('\n')
	}
	line(req.URL.EscapedPath(), req.URL.RawQuery, req.Host)
	for _, name := range slices.Sorted(maps.Keys(req.Header)) {
		if !passes(name) {
			line(append([]string{name}, req.Header[name]...)...)
		}
	}
	line(asked.beside)
	return out.String()
}
