// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
)

// Refusal is an answer that the processor gives in place of a model.
type Refusal struct {
	Status  int
	Message string
	Code    string // a word for programs; may be empty
	Headers map[string]string
	// Body goes out as it is when it is not empty, with ContentType.
	Body        []byte
	ContentType string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%d: %s", r.Status, r.Message) }

// Refuse makes one.
func Refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Message: fmt.Sprintf(format, args...)}
}

// Render is the refusal's body in the shape of an API, with its content type.
func (r *Refusal) Render(f enforcer.Format) (body []byte, contentType string) {
	if len(r.Body) > 0 {
		if r.ContentType == "" {
			return r.Body, "application/json"
		}
		return r.Body, r.ContentType
	}
	return ErrorBody(f, r.Status, r.Message, r.Code), "application/json"
}

// ErrorBody is an error object of an API.
func ErrorBody(f enforcer.Format, status int, message, code string) []byte {
	var body any
	if f == enforcer.Messages {
		body = map[string]any{"type": "error", "error": map[string]any{"type": messagesType(status), "message": message}}
	} else {
		inner := map[string]any{"message": message, "type": openAIType(status), "param": nil, "code": nil}
		if code != "" {
			inner["code"] = code
		}
		body = map[string]any{"error": inner}
	}
	out, err := json.Marshal(body)
	if err != nil { // strings and nothing else: it cannot be
		return []byte("{}")
	}
	return out
}

func openAIType(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status == http.StatusNotFound:
		return "not_found_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

func messagesType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case 529:
		return "overloaded_error"
	}
	if status >= http.StatusInternalServerError {
		return "api_error"
	}
	return "invalid_request_error"
}
