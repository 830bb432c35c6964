// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/admission"
)

func TestWebhooksAreGivenTheReader(t *testing.T) {
	server := newDrainingServer(t.Context(), Options{}, nil)
	server.reader = admission.FromClient(client.Reader(nil))
	var got admission.Reader
	server.Register("/ask", http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = admission.ReaderFrom(req.Context()) }))
	server.WebhookMux().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/ask", nil))
	if got != server.reader {
		t.Errorf("a webhook reads with %v", got)
	}
}
