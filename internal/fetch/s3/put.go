// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// Put writes one object of the bucket, for those who store something there. One at a time.
func (s *Source) Put(ctx context.Context, c *transfer.Client, key string, body []byte, contentType string) error {
	if s.vault == nil {
		s.vault = &vault{env: s.env, region: s.settings.region, client: c.Aside(), now: time.Now}
	}
	sum := sha256.Sum256(body)
	header := http.Header{"X-Amz-Content-Sha256": {hex.EncodeToString(sum[:])}}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	for attempt := 0; ; attempt++ {
		_, _, err := c.Do(ctx, transfer.Request{
			Method: http.MethodPut, URL: s.settings.address(s.bucket, key).String(), Header: header, Body: string(body), Sign: s.sign,
		}, pageLimit)
		var p *transfer.Problem
		if errors.As(err, &p) && attempt == 0 && p.Region != "" && p.Region != s.settings.region {
			s.settings.region = p.Region
			continue
		}
		return err
	}
}
