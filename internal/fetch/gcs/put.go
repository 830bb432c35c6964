// SPDX-License-Identifier: Apache-2.0

package gcs

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/token"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// scopeWrite is what a token must be for to write.
const scopeWrite = "https://www.googleapis.com/auth/devstorage.read_write"

// Writer is a bucket that objects are put into.
func Writer(bucket string, env func(string) string) (*Source, error) {
	return Parse("gs://"+bucket+"/", env)
}

// Put writes one object of the bucket. One at a time.
func (s *Source) Put(ctx context.Context, c *transfer.Client, key string, body []byte, contentType string) error {
	if s.sign == nil {
		s.credentials = &credentials{env: s.env, client: c.Aside(), now: time.Now, scope: scopeWrite}
		s.sign = (&token.Cache{Ask: s.credentials.ask}).Sign
	}
	header := http.Header{}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	address := s.base + "/upload/storage/v1/b/" + url.PathEscape(s.bucket) + "/o?" + url.Values{"uploadType": {"media"}, "name": {key}}.Encode()
	_, _, err := c.Do(ctx, transfer.Request{Method: http.MethodPost, URL: address, Header: header, Body: string(body), Sign: s.sign}, pageLimit)
	return err
}
