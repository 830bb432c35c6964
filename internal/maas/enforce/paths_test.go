// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/quota"
)

// TestPlaces: what the API answers is not charged, and nothing else: neither what is below or beside its paths, nor what only
// some readers take for them.
func TestPlaces(t *testing.T) {
	type want struct {
		where place
		model string
	}
	for request, w := range map[string]want{
		"GET /maas-api/health":                               {open, ""},
		"POST /maas-api/health":                              {inference, ""},
		"GET /maas-api/health/v1/chat/completions":           {inference, ""},
		"GET /v1/models":                                     {management, ""},
		"GET /maas-api/v1/models?x=/v1/chat/completions":     {management, ""},
		"HEAD /v1/subscriptions":                             {management, ""},
		"GET /v1/model/granite/subscriptions":                {management, ""},
		"GET /maas-api/v1/model/granite/subscriptions":       {management, ""},
		"GET /v1/model//subscriptions":                       {unclear, ""},
		"GET /v1/usage":                                      {management, ""},
		"GET /maas-api/v1/usage":                             {management, ""},
		"POST /v1/api-keys":                                  {management, ""},
		"POST /maas-api/v1/api-keys/search":                  {management, ""},
		"POST /v1/api-keys/bulk-revoke":                      {management, ""},
		"GET /v1/api-keys/config":                            {management, ""},
		"DELETE /v1/api-keys/5":                              {management, ""},
		"POST /maas-api/v1/chat/completions":                 {inference, ""},
		"POST /maas-api/v1/messages":                         {inference, ""},
		"POST /maas-api":                                     {inference, ""},
		"POST /v1/models":                                    {inference, ""},
		"POST /v1/models/v1/chat/completions":                {inference, ""},
		"POST /v1/models/":                                   {inference, ""},
		"POST /v1/api-keys/v1/chat/completions":              {inference, ""},
		"POST /v1/api-keys/5":                                {inference, ""},
		"POST /v1/usage":                                     {inference, ""},
		"POST /v1/chat/completions":                          {inference, ""},
		"POST /maas-api/llm/granite/v1/chat/completions":     {inference, ""},
		"POST /llm/granite/v1/chat/completions":              {inference, "llm/granite"},
		"POST /llm/granite":                                  {inference, "llm/granite"},
		"GET /llm/granite/v1/models":                         {listing, "llm/granite"},
		"POST /llm/granite/v1/models":                        {inference, "llm/granite"},
		"GET /llm/granite/v1/chat/completions/v1/models":     {inference, "llm/granite"},
		"GET /v1/chat/v1/models":                             {inference, ""},
		"POST /internal/v1/usage":                            {internal, ""},
		"POST /maas-api/internal/v1/usage":                   {internal, ""},
		"POST /v1/models/../chat/completions":                {unclear, ""},
		"POST /maas-api/v1/api-keys/..%2Fchat%2fcompletions": {unclear, ""},
		"POST /maas-api/v1/%2e./v1/chat/completions":         {unclear, ""},
		"POST //maas-api/v1/api-keys":                        {unclear, ""},
		"POST /v1//chat/completions":                         {unclear, ""},
		"POST /llm//granite/v1/chat/completions":             {unclear, ""},
		"POST /llm/granite/v1//chat/completions":             {unclear, ""},
		"POST /maas-api\\v1\\api-keys":                       {unclear, ""},
		"POST /v1/api-keys;x=/v1/chat/completions":           {unclear, ""},
		"POST http://host/v1/api-keys":                       {unclear, ""},
	} {
		method, path, _ := strings.Cut(request, " ")
		if where, model := placeOf(method, path); (want{where, model}) != w {
			t.Errorf("%s leads to %d %q, not %d %q", request, where, model, w.where, w.model)
		}
	}
}

// TestWhoIsCharged: whatever the path is, a request that names a model in its body is held against a quota, and where the path
// names one, that one is meant.
func TestWhoIsCharged(t *testing.T) {
	for path, model := range map[string]string{
		"/maas-api/v1/chat/completions":       "granite",
		"/maas-api/anything":                  "granite",
		"/v1/models/chat/completions":         "granite",
		"/v1/api-keys/x/v1/chat/completions":  "granite",
		"/llm/granite/v1/chat/completions":    "llm/granite",
		"/llm/granite/maas-api/v1/api-keys":   "llm/granite",
		"/llm/granite/v1/embeddings?model=xy": "llm/granite",
	} {
		h := &house{counters: quota.NewMemory(0, func() time.Time { return now })}
		r := at(http.MethodPost, path, chat("granite", "Authorization", "Bearer "+goodKey))
		d := ask(t, h.enforcer(t), r)
		if len(h.questions) != 1 || h.questions[0].Model != model || d.Report == nil || d.NoModel {
			t.Errorf("%s: asked %+v, and decided %+v", path, h.questions, d)
		}
		d.Report(enforcer.Usage{})
		if d := ask(t, h.enforcer(t), at(http.MethodPost, path, chat("granite"))); d.Status != http.StatusUnauthorized {
			t.Errorf("%s: without credentials: %+v", path, d)
		}
	}
	h := &house{}
	if d := ask(t, h.enforcer(t), at(http.MethodPost, "/v1/api-keys", chat("granite", "Authorization", "Bearer "+goodKey))); !d.Allowed() || !d.NoModel || d.Report != nil {
		t.Errorf("a request for a key: %+v", d)
	}
}
