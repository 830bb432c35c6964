// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"net/http"
	"testing"

	"github.com/modelplane/modelplane/internal/maas/payload/jsonbody"
)

func TestMaxTokens(t *testing.T) {
	for body, want := range map[string]int64{
		`{}`:                 0,
		`{"max_tokens":100}`: 100,
		`{"max_tokens":100,"max_completion_tokens":300}`: 300,
		`{"max_output_tokens":5,"n":3}`:                  15,
		`{"max_tokens":100,"best_of":4,"n":2}`:           400,
		`{"n":3}`:                                        0,
		`{"max_tokens":-1}`:                              0,
		`{"max_tokens":"5"}`:                             0,
		`{"max_tokens":null}`:                            0,
		`{"max_tokens":1e300}`:                           mostTokens,
		`{"max_tokens":1e300,"n":1e300}`:                 mostTokens,
	} {
		x := New(http.Header{":path": {"/v1/chat/completions"}})
		var err error
		if x.Body, err = jsonbody.Parse([]byte(body)); err != nil {
			t.Fatal(err)
		}
		if n := x.MaxTokens(); n != want {
			t.Errorf("%s: %d, want %d", body, n, want)
		}
	}
	if n := New(http.Header{}).MaxTokens(); n != 0 {
		t.Error(n)
	}
}
