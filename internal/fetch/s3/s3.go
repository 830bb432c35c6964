// SPDX-License-Identifier: Apache-2.0

// Package s3 finds models in S3 and what is compatible with it: one object, or all below a prefix. It signs requests
// itself, with credentials from wherever a pod may have them, and is told about endpoints and certificates by the same
// variables as other clients.
package s3

import (
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// Source is a model in a bucket.
type Source struct {
	bucket, path string
	env          func(string) string
	settings     settings
	vault        *vault
	from         atomic.Pointer[string] // where credentials came from
}

// Parse reads s3://BUCKET/PATH.
func Parse(address string, env func(string) string) (*Source, error) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(address[strings.Index(address, "://")+3:], "/"), "/")
	if bucket == "" || strings.ContainsAny(bucket, "@:?#%\\ ") {
		return nil, errors.New("it names no bucket; write s3://BUCKET/PATH")
	}
	env, err := withEntry(env)
	if err != nil {
		return nil, err
	}
	s := &Source{bucket: bucket, path: strings.TrimLeft(key, "/"), env: env}
	s.settings, err = readSettings(env)
	return s, err
}

// Trust is what the settings say.
func (s *Source) Trust() transfer.Trust { return s.settings.trust }

// pageLimit bounds one page of a listing; a page has up to 1,000 keys of up to 1,024 bytes.
const pageLimit = 16 << 20

// object is an entry of a listing.
type object struct {
	Key  string
	Size int64
	ETag string
}

// page of a listing.
type page struct {
	IsTruncated           bool
	NextContinuationToken string
	Contents              []object
}

// List finds the object itself, or all below it. An empty object with others below is how some tools make a directory.
func (s *Source) List(ctx context.Context, c *transfer.Client) ([]transfer.Item, error) {
	s.vault = &vault{env: s.env, region: s.settings.region, client: c.Aside(), now: time.Now}
	if s.path != "" && !strings.HasSuffix(s.path, "/") {
		first, err := s.exact(ctx, c)
		if err != nil || first != nil && first.Size != 0 {
			return first.items(s), err
		}
		below, err := s.below(ctx, c, s.path+"/")
		if err != nil || len(below) > 0 || first == nil {
			return below, err
		}
		return first.items(s), nil
	}
	return s.below(ctx, c, s.path)
}

func (o *object) items(s *Source) []transfer.Item {
	if o == nil {
		return nil
	}
	item := s.item(*o, path.Base(o.Key))
	item.Whole = true
	return []transfer.Item{item}
}

// exact is the object with that very key, if there is one: of all keys that begin with it, it is listed first. Somebody
// who may read but not list gets it unseen.
func (s *Source) exact(ctx context.Context, c *transfer.Client) (*object, error) {
	p, err := s.page(ctx, c, s.path, "", "1")
	if err != nil {
		if transfer.Status(err) == http.StatusForbidden && code(err) == "AccessDenied" {
			return &object{Key: s.path, Size: -1}, nil
		}
		return nil, err
	}
	if len(p.Contents) == 0 || p.Contents[0].Key != s.path {
		return nil, nil // there is none
	}
	return &p.Contents[0], nil
}

func code(err error) string {
	var p *transfer.Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}

func (s *Source) below(ctx context.Context, c *transfer.Client, prefix string) ([]transfer.Item, error) {
	var out []transfer.Item
	for token := ""; ; {
		p, err := s.page(ctx, c, prefix, token, "")
		if err != nil {
			return nil, err
		}
		for _, o := range p.Contents {
			name := strings.TrimLeft(strings.TrimPrefix(o.Key, prefix), "/")
			if name != "" && !strings.HasSuffix(name, "/") {
				out = append(out, s.item(o, name))
			}
		}
		if !p.IsTruncated || p.NextContinuationToken == "" {
			return out, nil
		}
		token = p.NextContinuationToken
	}
}

// page asks for a piece of a listing. A bucket in another region says so once.
func (s *Source) page(ctx context.Context, c *transfer.Client, prefix, token, most string) (*page, error) {
	values := url.Values{"list-type": {"2"}, "prefix": {prefix}, "encoding-type": {"url"}}
	if token != "" {
		values.Set("continuation-token", token)
	}
	if most != "" {
		values.Set("max-keys", most)
	}
	for attempt := 0; ; attempt++ {
		u := s.settings.address(s.bucket, "")
		u.RawQuery = query(values)
		body, _, err := c.Do(ctx, transfer.Request{URL: u.String(), Sign: s.sign}, pageLimit)
		var p *transfer.Problem
		if errors.As(err, &p) && attempt == 0 && p.Region != "" && p.Region != s.settings.region {
			s.settings.region = p.Region
			continue
		}
		if err != nil {
			return nil, err
		}
		return readPage(body)
	}
}

func readPage(body []byte) (*page, error) {
	var out struct {
		page
		EncodingType string
	}
	if err := xml.Unmarshal(body, &out); err != nil {
		return nil, &transfer.Problem{What: "the server does not answer as S3 does"}
	}
	if out.EncodingType != "url" {
		return &out.page, nil
	}
	for i := range out.Contents {
		key, err := url.QueryUnescape(out.Contents[i].Key)
		if err != nil {
			return nil, &transfer.Problem{What: "the server lists a key that cannot be read"}
		}
		out.Contents[i].Key = key
	}
	return &out.page, nil
}

func (s *Source) item(o object, name string) transfer.Item {
	return transfer.Item{Name: name, Object: transfer.Object{
		URL: s.settings.address(s.bucket, o.Key).String(), Sign: s.sign, Size: o.Size, ETag: o.ETag,
	}}
}

// sign adds credentials, unless there are none or none are wanted.
func (s *Source) sign(ctx context.Context, request *http.Request) error {
	if s.settings.anonymous {
		s.from.Store(new("no credentials, as configured"))
		return nil
	}
	k, err := s.vault.get(ctx)
	if err != nil {
		return err
	}
	s.from.Store(&k.from)
	if k.ID != "" {
		Sign(request, k.Keys, s.settings.region, s.vault.now())
	}
	return nil
}

// Next says what to do about an answer.
func (s *Source) Next(status int) string {
	with := "its credentials"
	if from := s.from.Load(); from != nil {
		with = *from
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusBadRequest:
		return "it was asked with " + with + "; check them, and that they may list and read bucket " + s.bucket
	case http.StatusNotFound:
		return "check bucket " + s.bucket + " and the path"
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect:
		return "check the region of bucket " + s.bucket
	case 0:
		return "check the endpoint of the storage, its certificates, and the network to it"
	}
	return "try again later, or ask those who run the storage"
}
