// SPDX-License-Identifier: Apache-2.0

// Package gcs finds models in Google Cloud Storage: all objects below a path, or the one that the path names.
package gcs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/token"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// Source is a model in a bucket.
type Source struct {
	bucket, path string
	base         string
	env          func(string) string
	credentials  *credentials
	sign         transfer.Signer
}

// Parse reads gs://BUCKET/PATH. STORAGE_EMULATOR_HOST names another server, as for other clients.
func Parse(address string, env func(string) string) (*Source, error) {
	bucket, key, _ := strings.Cut(address[strings.Index(address, "://")+3:], "/")
	if bucket == "" || strings.ContainsAny(bucket, "@:?#%\\ ") {
		return nil, errors.New("it names no bucket; write gs://BUCKET/PATH")
	}
	base := cmp.Or(strings.TrimSuffix(env("STORAGE_EMULATOR_HOST"), "/"), "https://storage.googleapis.com")
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	return &Source{bucket: bucket, path: strings.Trim(key, "/"), base: base, env: env}, nil
}

// Trust is the system's.
func (*Source) Trust() transfer.Trust { return transfer.Trust{} }

// object is an entry of a listing; numbers are texts there.
type object struct {
	Name, Size, MD5Hash, CRC32C, Generation, ContentEncoding string
}

const pageLimit = 16 << 20

const fields = "name,size,md5Hash,crc32c,generation,contentEncoding"

// List finds all below the path, or what has that very name.
func (s *Source) List(ctx context.Context, c *transfer.Client) ([]transfer.Item, error) {
	s.credentials = &credentials{env: s.env, client: c.Aside(), now: time.Now}
	s.sign = (&token.Cache{Ask: s.credentials.ask}).Sign
	prefix := ""
	if s.path != "" {
		prefix = s.path + "/"
	}
	items, err := s.below(ctx, c, prefix)
	if err != nil || len(items) > 0 || s.path == "" {
		return items, err
	}
	body, _, err := c.Do(ctx, transfer.Request{URL: s.address(s.path, url.Values{"fields": {fields}}), Sign: s.sign}, pageLimit)
	if err != nil {
		return nil, err
	}
	var o object
	if json.Unmarshal(body, &o) != nil || o.Name == "" {
		return nil, unlike()
	}
	item := s.item(o, path.Base(o.Name))
	item.Whole = true
	return []transfer.Item{item}, nil
}

func (s *Source) below(ctx context.Context, c *transfer.Client, prefix string) ([]transfer.Item, error) {
	var out []transfer.Item
	for next := ""; ; {
		values := url.Values{"prefix": {prefix}, "fields": {"items(" + fields + "),nextPageToken"}}
		if next != "" {
			values.Set("pageToken", next)
		}
		u := s.base + "/storage/v1/b/" + url.PathEscape(s.bucket) + "/o?" + values.Encode()
		body, _, err := c.Do(ctx, transfer.Request{URL: u, Sign: s.sign}, pageLimit)
		if err != nil {
			return nil, err
		}
		var page struct {
			Items         []object
			NextPageToken string
		}
		if json.Unmarshal(body, &page) != nil {
			return nil, unlike()
		}
		for _, o := range page.Items {
			name := strings.TrimLeft(strings.TrimPrefix(o.Name, prefix), "/")
			if name != "" && !strings.HasSuffix(name, "/") {
				out = append(out, s.item(o, name))
			}
		}
		if next = page.NextPageToken; next == "" {
			return out, nil
		}
	}
}

func unlike() error {
	return &transfer.Problem{What: "the server does not answer as Google Cloud Storage does"}
}

// address of an object. Its name is one segment of the path, whatever it contains.
func (s *Source) address(name string, values url.Values) string {
	return s.base + "/storage/v1/b/" + url.PathEscape(s.bucket) + "/o/" + strings.ReplaceAll(url.PathEscape(name), "+", "%2B") + "?" + values.Encode()
}

func (s *Source) item(o object, name string) transfer.Item {
	values := url.Values{"alt": {"media"}}
	if o.Generation != "" {
		values.Set("generation", o.Generation) // the very version that was listed
	}
	size, err := strconv.ParseInt(o.Size, 10, 64)
	sums := append(transfer.Base64(transfer.MD5, o.MD5Hash), transfer.Base64(transfer.CRC32C, o.CRC32C)...)
	if err != nil || o.ContentEncoding == "gzip" {
		// It is unpacked on the way, so that neither its size nor its sum is that of what arrives.
		size, sums = -1, nil
	}
	return transfer.Item{Name: name, Object: transfer.Object{URL: s.address(o.Name, values), Sign: s.sign, Size: size, Sums: sums}}
}

// Next says what to do about an answer.
func (s *Source) Next(status int) string {
	from := "its credentials"
	if s.credentials != nil && s.credentials.from != "" {
		from = s.credentials.from
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusBadRequest:
		return "it was asked with " + from + "; check that they may list and read bucket " + s.bucket
	case http.StatusNotFound:
		return "check bucket " + s.bucket + " and the path"
	case 0:
		return "check the network to Google Cloud Storage"
	}
	return "try again later"
}
