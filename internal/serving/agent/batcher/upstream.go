// SPDX-License-Identifier: Apache-2.0

package batcher

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/google/uuid"
)

// reply is what a client gets.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r *reply) write(w http.ResponseWriter) {
	for name, values := range r.header {
		w.Header()[name] = values
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body) // a client that has gone needs nothing
}

// The words for an answer that cannot be divided.
const differs = "size of prediction is not equal to the size of instances"

// together asks the model for all requests at once. When again is true the answer does not tell whose fault it is, and they
// are to be asked one by one.
func (b *Batcher) together(ctx context.Context, first *http.Request, requests []*Request) (replies []*reply, again bool) {
	got, err := b.send(ctx, first, merge(requests))
	if err != nil {
		return same(&reply{status: http.StatusBadGateway, body: []byte(err.Error() + "\n"),
			header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}}, len(requests)), false
	}
	if got.status != http.StatusOK {
		return same(got, len(requests)), len(requests) > 1 && blames(got.status)
	}
	id := uuid.NewString()
	predictions, beside, problem := readAnswer(got.body)
	total := 0
	for _, r := range requests {
		total += len(r.Instances)
	}
	if problem == "" && len(predictions) != total {
		problem = differs
	}
	if problem != "" {
		return same(wrong(problem, id), len(requests)), len(requests) > 1
	}
	for _, r := range requests {
		n := len(r.Instances)
		replies = append(replies, share(id, predictions[:n], beside))
		predictions = predictions[n:]
	}
	return replies, false
}

func same(r *reply, n int) []*reply {
	out := make([]*reply, n)
	for i := range out {
		out[i] = r
	}
	return out
}

// blames tells whether an answer may be about one of the requests only.
func blames(status int) bool {
	return status >= 400 && status <= 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
}

// send asks the model in the name of the first of those who wait.
func (b *Batcher) send(ctx context.Context, first *http.Request, body []byte) (*reply, error) {
	u := *first.URL
	u.Scheme, u.Host, u.User = b.Upstream.Scheme, b.Upstream.Host, nil
	req := (&http.Request{
		Method: http.MethodPost, URL: &u, Host: first.Host, Proto: first.Proto, ProtoMajor: first.ProtoMajor, ProtoMinor: first.ProtoMinor,
		Header: headerFor(first), Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	}).WithContext(ctx)
	answer, err := b.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, b.Answer+1))
	if err != nil {
		return nil, err
	}
	got := &reply{status: answer.StatusCode, header: http.Header{}, body: text}
	if int64(len(text)) > b.Answer {
		return wrong("the answer for all requests of the batch is longer than what is kept; ask for less at a time", ""), nil
	}
	for _, name := range []string{"Content-Type", "Retry-After", "Www-Authenticate", "Location"} {
		if values := answer.Header.Values(name); len(values) > 0 {
			got.header[name] = values
		}
	}
	return got, nil
}

// headerFor is what a request has beside what concerns the connection that it came by.
func headerFor(first *http.Request) http.Header {
	h := first.Header.Clone()
	for _, list := range h.Values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length"} {
		h.Del(name)
	}
	h.Set("Accept-Encoding", "identity") // the answer is divided
	h.Set("Content-Type", "application/json")
	if host, _, err := net.SplitHostPort(first.RemoteAddr); err == nil {
		h.Set("X-Forwarded-For", strings.Join(append(h.Values("X-Forwarded-For"), host), ", "))
	}
	return h
}

// readAnswer takes an answer apart: the predictions, and fields beside them that hold for all.
func readAnswer(body []byte) (predictions []json.RawMessage, beside, problem string) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, "", err.Error()
	}
	if raw, ok := fields["predictions"]; ok {
		if err := json.Unmarshal(raw, &predictions); err != nil {
			return nil, "", err.Error()
		}
	}
	for _, name := range []string{"predictions", "message", "batchId"} {
		delete(fields, name)
	}
	beside, err := besides(fields)
	if err != nil {
		return nil, "", err.Error()
	}
	return predictions, beside, ""
}

var asJSON = http.Header{"Content-Type": {"application/json"}}

// share is the part of one client.
func share(id string, predictions []json.RawMessage, beside string) *reply {
	var out bytes.Buffer
	out.WriteString(`{"message":"","batchId":"` + id + `","predictions":[`)
	for i, p := range predictions {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(p)
	}
	out.WriteByte(']')
	out.WriteString(beside)
	out.WriteByte('}')
	return &reply{status: http.StatusOK, header: asJSON, body: out.Bytes()}
}

// wrong is for an answer of the model that no client can be given.
func wrong(message, id string) *reply {
	body, err := json.Marshal(map[string]any{"message": message, "batchId": id, "predictions": nil})
	if err != nil {
		body = []byte("{}") // texts always encode
	}
	return &reply{status: http.StatusBadGateway, header: asJSON, body: body}
}
