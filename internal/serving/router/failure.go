// SPDX-License-Identifier: Apache-2.0

package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/modelplane/modelplane/internal/openinference"
)

// clientGone is what others write for a request whose client went away.
const clientGone = 499

// failure is why a request has no answer of a service.
type failure struct {
	status int
	cause  string
}

func (f *failure) Error() string { return f.cause }

func failf(status int, format string, args ...any) error {
	return &failure{status, fmt.Sprintf(format, args...)}
}

// problem is the body that clients of the known router read.
type problem struct {
	Error string `json:"error"`
	Cause string `json:"cause"`
}

// told is the body of an answer that is an error.
func told(cause string) []byte {
	text, err := json.Marshal(problem{"Failed to process request", cause})
	if err != nil {
		panic(err) // only strings come here
	}
	return text
}

// statusOf is what HTTP calls an error. Whatever went wrong with a service is 500.
func statusOf(err error) int {
	if own, ok := errors.AsType[*failure](err); ok {
		return own.status
	}
	if _, ok := errors.AsType[*openinference.Error](err); ok {
		switch openinference.KindOf(err) {
		case openinference.TooLarge:
			return http.StatusRequestEntityTooLarge
		case openinference.Busy:
			return http.StatusServiceUnavailable
		case openinference.Invalid:
			return http.StatusBadRequest
		}
	}
	return http.StatusInternalServerError
}

// fail writes an error.
func fail(w http.ResponseWriter, err error) (status int) {
	status = statusOf(err)
	text := told(err.Error())
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // a client that went away hears nothing
	return status
}
