// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"sync/atomic"
)

// heldBodies is how many bytes of all bodies are held at the same time.
const heldBodies = 64 << 20

// bodies counts what is held of them.
type bodies struct{ held atomic.Int64 }

// take makes room for the body of a request, as long as it may become; give it back when the request is over.
func (b *bodies) take(req *http.Request, most int64) (give func(), ok bool) {
	n := req.ContentLength
	if n < 0 || n > most {
		n = most
	}
	if b.held.Add(n) > heldBodies {
		b.held.Add(-n)
		return nil, false
	}
	return func() { b.held.Add(-n) }, true
}

func crowded(req *http.Request) answer {
	const message = "too many requests are being read; try again in a moment"
	out := told(http.StatusServiceUnavailable, message).answer
	if isNested(req.URL.Path) {
		out = nested(http.StatusServiceUnavailable, message, "server_error").answer
	}
	out.header = map[string]string{"Retry-After": "1"}
	return out
}
