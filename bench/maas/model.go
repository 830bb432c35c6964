// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// What the model says: at once as a whole, or in so many events with a pause before each.
const (
	events   = 20
	interval = 40 * time.Millisecond
	usage    = `"usage":{"prompt_tokens":12,"completion_tokens":20,"total_tokens":32}`
	whole    = `{"id":"bench","object":"chat.completion","model":"bench","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hello"}}],` + usage + `}`
	event    = `{"id":"bench","object":"chat.completion.chunk","model":"bench","choices":[{"index":0,"delta":{"content":"hello "}}]}`
	lastOne  = `{"id":"bench","object":"chat.completion.chunk","model":"bench","choices":[],` + usage + `}`
)

// streamed is how a request for a stream says so.
var streamed = []byte(`"stream":true`)

// prompt is a request of about a length.
func prompt(model string, length int, stream bool) []byte {
	begin := fmt.Sprintf(`{"model":"%s/%s","max_tokens":100,`, modelSpace, model)
	if stream {
		begin += string(streamed) + ","
	}
	begin += `"messages":[{"role":"user","content":"`
	const end = `"}]}`
	filler := bytes.Repeat([]byte("what is it? "), max(1, (length-len(begin)-len(end))/12))
	return []byte(begin + string(filler) + end)
}

// modelProcess answers chat completions until its standard input ends.
func modelProcess(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(answer)}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// answer needs the beginning of a request only, and reads all of it.
func answer(w http.ResponseWriter, r *http.Request) {
	head := make([]byte, 256)
	n, _ := io.ReadFull(r.Body, head) // a short one is as good
	_, _ = io.Copy(io.Discard, r.Body)
	if !bytes.Contains(head[:n], streamed) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, whole)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	for n := range events {
		select {
		case <-time.After(interval):
		case <-r.Context().Done():
			return
		}
		data := event
		if n == events-1 {
			data = lastOne + "\n\ndata: [DONE]"
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
			return
		}
		_ = flush.Flush() // whoever went away is seen above
	}
}
