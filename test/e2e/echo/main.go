// SPDX-License-Identifier: Apache-2.0

// Command echo is the server in the pods of the end-to-end tests. It answers with the name of its pod, and
// asks other servers on behalf of a test, so that the test sees the network as a pod does. It remembers events and models that it
// is told of, and speaks as a language model does. Told so, it fails instead.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	trouble(os.Args[1:])
	name, err := os.Hostname()
	if err != nil {
		fail(err)
	}
	http.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) })
	http.HandleFunc("GET /ask", ask)
	remember(http.DefaultServeMux)
	speak(http.DefaultServeMux)
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: 10 * time.Second}
	fail(server.ListenAndServe())
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "echo:", err)
	os.Exit(1)
}

// ask passes on the answer of the server in the url parameter.
func ask(w http.ResponseWriter, r *http.Request) {
	client := &http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(r.FormValue("url"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = response.Body.Close() }()
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(response.Body, 1<<20))
}
