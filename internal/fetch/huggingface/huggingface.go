// SPDX-License-Identifier: Apache-2.0

// Package huggingface finds the files of a model on the Hugging Face hub, at one revision.
package huggingface

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// Source is a model on the hub.
type Source struct {
	repository, revision string
	endpoint             string
	token                string
}

var nameShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`) })

// Parse reads hf://ORGANISATION/MODEL[:REVISION]. HF_ENDPOINT and HF_TOKEN are as for other clients.
func Parse(address string, env func(string) string) (*Source, error) {
	owner, model, _ := strings.Cut(address[strings.Index(address, "://")+3:], "/")
	model, revision, given := strings.Cut(model, ":")
	if !nameShape().MatchString(owner) || !nameShape().MatchString(model) || given && revision == "" {
		return nil, errors.New("it names no model; write hf://ORGANISATION/MODEL or hf://ORGANISATION/MODEL:REVISION")
	}
	return &Source{
		repository: owner + "/" + model, revision: cmp.Or(revision, "main"),
		endpoint: cmp.Or(strings.TrimSuffix(env("HF_ENDPOINT"), "/"), "https://huggingface.co"),
		token:    strings.TrimSpace(cmp.Or(env("HF_TOKEN"), env("HUGGING_FACE_HUB_TOKEN"))),
	}, nil
}

// Trust is the system's.
func (*Source) Trust() transfer.Trust { return transfer.Trust{} }

const pageLimit = 16 << 20

// entry of the tree of a revision.
type entry struct {
	Type, Path, OID string
	Size            int64
	LFS             *struct {
		OID  string
		Size int64
	}
}

// List finds the files of the commit that the revision is at now, so that all belong together.
func (s *Source) List(ctx context.Context, c *transfer.Client) ([]transfer.Item, error) {
	base := s.endpoint + "/api/models/" + s.repository
	body, _, err := c.Do(ctx, transfer.Request{URL: base + "/revision/" + url.PathEscape(s.revision), Sign: s.sign}, pageLimit)
	if err != nil {
		return nil, err
	}
	var model struct{ SHA string }
	if json.Unmarshal(body, &model) != nil || model.SHA == "" {
		return nil, unlike()
	}
	var out []transfer.Item
	for next := base + "/tree/" + url.PathEscape(model.SHA) + "?recursive=true"; next != ""; {
		body, header, err := c.Do(ctx, transfer.Request{URL: next, Sign: s.sign}, pageLimit)
		if err != nil {
			return nil, err
		}
		var page []entry
		if json.Unmarshal(body, &page) != nil {
			return nil, unlike()
		}
		for _, e := range page {
			if e.Type == "file" {
				out = append(out, s.item(e, model.SHA))
			}
		}
		if next, err = s.following(next, header); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func unlike() error {
	return &transfer.Problem{What: "the server does not answer as the Hugging Face hub does"}
}

var nextLink = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`<([^>]+)>\s*;\s*rel="?next"?`) })

// following is the address of the next page. It must be on the hub, because the token goes there.
func (s *Source) following(here string, header http.Header) (string, error) {
	m := nextLink().FindStringSubmatch(header.Get("Link"))
	if m == nil {
		return "", nil
	}
	base, err := url.Parse(here)
	if err != nil {
		return "", unlike()
	}
	next, err := base.Parse(m[1])
	if err != nil || next.Host != base.Host || next.Scheme != base.Scheme || next.String() == here {
		return "", unlike()
	}
	return next.String(), nil
}

func (s *Source) item(e entry, commit string) transfer.Item {
	size, sums := e.Size, transfer.Hex(transfer.GitSHA, e.OID)
	if e.LFS != nil {
		size, sums = e.LFS.Size, transfer.Hex(transfer.SHA256, e.LFS.OID)
	}
	var escaped []string
	for _, part := range strings.Split(e.Path, "/") {
		escaped = append(escaped, url.PathEscape(part))
	}
	return transfer.Item{Name: e.Path, Object: transfer.Object{
		URL:  s.endpoint + "/" + s.repository + "/resolve/" + url.PathEscape(commit) + "/" + strings.Join(escaped, "/"),
		Sign: s.sign, Size: size, Sums: sums,
	}}
}

func (s *Source) sign(_ context.Context, request *http.Request) error {
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	return nil
}

// Next says what to do about an answer.
func (s *Source) Next(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		if s.token == "" {
			return "check the name and the revision; a gated or private model needs HF_TOKEN in the secret of the service account"
		}
		return "check the name and the revision, and that the account of HF_TOKEN has access to the model"
	case 0:
		return "check the network to " + s.endpoint
	}
	return "try again later"
}
