// SPDX-License-Identifier: Apache-2.0

// Package web names the one file behind an http or https address, with the headers that a secret has for its host.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
	"github.com/modelplane/modelplane/internal/fetch/unpack"
)

// Source is one file on a web server.
type Source struct {
	url    *url.URL
	header http.Header
	trust  transfer.Trust
}

// Parse reads an address. The variable HOST-headers has further headers as a JSON object; HOST-certificate has
// certificates to trust, HOST-client-certificate and HOST-client-key who we are, all in PEM form.
func Parse(address string, env func(string) string) (*Source, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, errors.New("it is no valid address; write https://HOST/PATH")
	}
	if name(u) == "" {
		return nil, errors.New("the address names no file; write https://HOST/PATH with the name of a file or an archive at its end")
	}
	s := &Source{url: u, header: http.Header{}, trust: transfer.Trust{
		PEM: []byte(env(u.Hostname() + "-certificate")), Certificate: []byte(env(u.Hostname() + "-client-certificate")),
		Key: []byte(env(u.Hostname() + "-client-key")),
	}}
	if user := u.User; user != nil {
		password, _ := user.Password()
		request := http.Request{Header: s.header}
		request.SetBasicAuth(user.Username(), password)
		u.User = nil
	}
	if err := s.readHeaders(env(u.Hostname() + "-headers")); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Source) readHeaders(text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	var headers map[string]string
	if json.Unmarshal([]byte(text), &headers) != nil { // the error would show a part of the secret
		return fmt.Errorf("the headers for %s are no JSON object of texts; correct the key headers of the secret", s.url.Hostname())
	}
	for name, value := range headers {
		if strings.ContainsAny(name, " :\r\n") || name == "" || strings.ContainsAny(value, "\r\n") {
			return fmt.Errorf("the headers for %s have one that is no HTTP header; correct the key headers of the secret", s.url.Hostname())
		}
		s.header.Set(name, value)
	}
	return nil
}

// name of the file. Some servers have it at the end of the query.
func name(u *url.URL) string {
	base := path.Base(u.Path)
	if base == "." || base == "/" || strings.HasSuffix(u.Path, "/") || base == ".." {
		return ""
	}
	query, err := url.QueryUnescape(u.RawQuery)
	if err == nil && !unpack.Known(base) {
		if last := query[strings.LastIndexAny(query, "/=&")+1:]; unpack.Known(last) {
			return last
		}
	}
	return base
}

// List names the file.
func (s *Source) List(context.Context, *transfer.Client) ([]transfer.Item, error) {
	file := name(s.url)
	return []transfer.Item{{Name: file, Whole: true, Object: transfer.Object{
		URL: s.url.String(), Header: s.header, Size: -1,
		Check: func(response *http.Response) error { return noPage(response, file) },
	}}}, nil
}

// noPage refuses what servers show to people who ought to log in.
func noPage(response *http.Response, file string) error {
	kind := response.Header.Get("Content-Type")
	if strings.HasPrefix(kind, "text/html") && !strings.HasSuffix(strings.ToLower(file), ".html") {
		return errors.New("the server answers with a web page instead of the file; check the address, and whether it wants credentials")
	}
	return nil
}

// Trust is the system's, and what the variables add.
func (s *Source) Trust() transfer.Trust { return s.trust }

// Next says what to do about an answer.
func (s *Source) Next(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "check the headers in the secret with https-host " + s.url.Hostname() + ", or whether the address has expired"
	case http.StatusNotFound, http.StatusGone:
		return "check the address"
	case 0:
		return "check the address, and the network to it"
	}
	return "try again later, or ask those who run the server"
}
