// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"sync"
	"time"
)

// Problem is why something could not be read.
type Problem struct {
	// What is wrong, in words.
	What string
	// Status of the answer, when there was one, and the server's own word for it.
	Status int
	Code   string
	// Region that an S3 server says to be the right one.
	Region string

	transient bool
	after     time.Duration
	err       error
}

func (p *Problem) Error() string { return p.What }

func (p *Problem) Unwrap() error { return p.err }

// Status of the answer behind an error, or 0.
func Status(err error) int {
	var p *Problem
	if errors.As(err, &p) {
		return p.Status
	}
	return 0
}

// statusWords say what a status means for somebody who wants a model.
var statusWords = map[int]string{
	http.StatusUnauthorized:       "access is denied (401)",
	http.StatusForbidden:          "access is denied (403)",
	http.StatusNotFound:           "it does not exist (404)",
	http.StatusGone:               "it does not exist any more (410)",
	http.StatusTooManyRequests:    "the server asks for patience (429)",
	http.StatusServiceUnavailable: "the server is not available (503)",
}

var transientStatus = map[int]bool{
	http.StatusRequestTimeout: true, http.StatusTooEarly: true, http.StatusTooManyRequests: true, http.StatusInternalServerError: true,
	http.StatusBadGateway: true, http.StatusServiceUnavailable: true, http.StatusGatewayTimeout: true,
}

// codeShape is what servers use as words for errors. Anything else could be a piece of a secret.
var codeShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{1,60}$`) })

// refusal turns an answer that is an error into a problem.
func refusal(response *http.Response) *Problem {
	body, err := io.ReadAll(io.LimitReader(response.Body, errorBody))
	if err != nil {
		body = nil
	}
	p := &Problem{Status: response.StatusCode, transient: transientStatus[response.StatusCode], after: retryAfter(response.Header)}
	p.Code, p.Region = words(body)
	for _, name := range []string{"X-Ms-Error-Code", "X-Error-Code"} { // Azure, Hugging Face
		if code := response.Header.Get(name); codeShape().MatchString(code) {
			p.Code = code
		}
	}
	if region := response.Header.Get("X-Amz-Bucket-Region"); region != "" {
		p.Region = region
	}
	if p.What = statusWords[p.Status]; p.What == "" {
		p.What = fmt.Sprintf("the server answers with status %d", p.Status)
	}
	if p.Code != "" {
		p.What += ", " + p.Code
	}
	return p
}

// words finds the server's own word for an error in XML (S3, Azure) or JSON (others).
func words(body []byte) (code, region string) {
	body = bytes.TrimSpace(body)
	var x struct {
		Code   string
		Region string
	}
	if bytes.HasPrefix(body, []byte("<")) && xml.Unmarshal(body, &x) == nil && codeShape().MatchString(x.Code) {
		return x.Code, x.Region
	}
	var j struct {
		Error     json.RawMessage
		ErrorCode string `json:"errorCode"`
		Remote    struct {
			Exception string
		} `json:"RemoteException"`
	}
	if json.Unmarshal(body, &j) != nil {
		return "", ""
	}
	var text string
	if json.Unmarshal(j.Error, &text) == nil && codeShape().MatchString(text) {
		return text, ""
	}
	for _, word := range []string{j.ErrorCode, j.Remote.Exception} {
		if codeShape().MatchString(word) {
			return word, ""
		}
	}
	return "", ""
}

// broken is a connection that ended too early.
func broken(err error) *Problem {
	return &Problem{What: "the connection broke: " + cause(context.Background(), err), transient: true, err: err}
}

// temporary tells failures of the network from those that stay: certificates, redirects, protocols.
func temporary(err error) bool {
	var (
		unknown  x509.UnknownAuthorityError
		host     x509.HostnameError
		invalid  x509.CertificateInvalidError
		verify   *tls.CertificateVerificationError
		protocol tls.RecordHeaderError
	)
	if errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid) || errors.As(err, &verify) || errors.As(err, &protocol) {
		return false
	}
	return !errRedirect().MatchString(err.Error())
}

var errRedirect = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`it redirects (too often|from https)|unsupported protocol scheme|server gave HTTP response to HTTPS client`)
})
