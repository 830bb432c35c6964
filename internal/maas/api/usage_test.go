// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestUsage: what processes of the platform tell once is counted once. People see their own, administrators everybody's, and
// nobody tells of usage from outside.
func TestUsage(t *testing.T) {
	everywhere(t, func(s *server) {
		row := func(user string, tokens int) string {
			return fmt.Sprintf(`{"hour":%q,"tenant":%q,"subscription":"maas/gold","model":"models/llama","username":%q,"requests":1,"promptTokens":1,"completionTokens":%d,"totalTokens":%d}`,
				time.Now().UTC().Truncate(time.Hour).Format(time.RFC3339), tenantName, user, tokens-1, tokens)
		}
		batch := `{"batch":"one","rows":[` + row("ann", 100) + "," + row("bob", 7) + `]}`
		for range 2 { // an answer may be lost
			s.inside("POST", "/internal/v1/usage", batch).is(s, 204)
		}
		s.inside("POST", "/internal/v1/usage", `{"batch":"two","rows":[`+strings.Replace(row("ann", 5), tenantName, "another", 1)+`]}`).is(s, 400)
		s.call("POST", s.internal+"/internal/v1/usage", batch, "Authorization: Bearer "+ann).is(s, 403)
		s.as(admin, "POST", "/internal/v1/usage", batch).is(s, 404)

		own := s.as(ann, "GET", "/v1/usage", "").is(s, 200, `"total_tokens":100`, `"subscription":"maas/gold"`)
		if strings.Contains(own.text, "107") {
			s.Errorf("ann sees the tokens of others: %s", own.text)
		}
		s.as(ann, "GET", "/v1/usage?user=bob", "").is(s, 403, `{"error":{"message":"only administrators`)
		s.as(admin, "GET", "/v1/usage?by=user", "").is(s, 200, `"total_tokens":107`, `"user":"ann"`, `"user":"bob"`)
		s.as(admin, "GET", "/v1/usage?by=user&format=csv", "").is(s, 200, "ann,", "bob,")
		s.as(admin, "GET", "/v1/usage?colour=red", "").is(s, 400)
		s.call("GET", s.public+"/v1/usage", "").is(s, 401)
		s.as(broken, "GET", "/v1/usage", "").is(s, 503)
	})
}
