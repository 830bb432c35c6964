// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkRouter compares calling a service with calling it through graphs, one request after the other on one connection.
func BenchmarkRouter(b *testing.B) {
	reply := []byte(`{"predictions":[[0.1,0.2,0.7]]}`)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = w.Write(reply)
	}))
	defer service.Close()
	step := `{"serviceUrl":"` + service.URL + `","weight":50,"condition":"instances"}`
	first := `{"serviceUrl":"` + service.URL + `"}`
	for _, c := range []struct{ name, node string }{
		{"direct", ""},
		{"sequence of one", `{"routerType":"Sequence","steps":[` + first + `]}`},
		{"sequence of two", `{"routerType":"Sequence","steps":[` + first + `,` + first + `]}`},
		{"switch", `{"routerType":"Switch","steps":[` + step + `]}`},
		{"splitter", `{"routerType":"Splitter","steps":[` + step + `,` + step + `]}`},
		{"ensemble of two", `{"routerType":"Ensemble","steps":[` + first + `,` + first + `]}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			url := service.URL
			if c.node != "" {
				url = served(b, made(b, `{"nodes":{"root":`+c.node+`}}`, "", usual)).URL
			}
			body := []byte(`{"instances":[[5.1,3.5,1.4,0.2]]}`)
			for b.Loop() {
				response, err := http.Post(url, "application/json", bytes.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
					b.Fatal(err, response.Status)
				}
				_ = response.Body.Close()
			}
		})
	}
}
