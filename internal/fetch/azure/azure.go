// SPDX-License-Identifier: Apache-2.0

// Package azure finds models in Azure: blobs below a path of a container, or files below a directory of a file share.
package azure

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

var (
	hosts = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([a-z0-9-]+)\.(?:z[0-9]{1,2}\.)?(blob|file|dfs)\.(core\.windows\.net|storage\.azure\.net|core\.chinacloudapi\.cn|core\.usgovcloudapi\.net)$`)
	})
	abfs = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^abfss?://([^@/]+)@([^/]+)(/.*)?$`) })
)

// Source is a model in a container or a share.
type Source struct {
	account   string
	base      *url.URL // of the account
	container string
	path      string
	shared    url.Values // a shared access signature
	share     bool       // files instead of blobs
	env       func(string) string
	signer    *signer
}

// Is tells whether an address is one of Azure.
func Is(address string) bool {
	if abfs().MatchString(address) {
		return true
	}
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && hosts().MatchString(strings.ToLower(u.Host))
}

// Parse reads https://ACCOUNT.blob.core.windows.net/CONTAINER/PATH, with or without a shared access signature, the same
// for file shares, and abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH. AZURE_SERVICE_URL names another server.
func Parse(address string, env func(string) string) (*Source, error) {
	if m := abfs().FindStringSubmatch(address); m != nil {
		address = "https://" + m[2] + "/" + m[1] + m[3]
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, usage()
	}
	m := hosts().FindStringSubmatch(strings.ToLower(u.Host))
	container, key, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if m == nil || container == "" {
		return nil, usage()
	}
	host := strings.Replace(strings.ToLower(u.Host), ".dfs.", ".blob.", 1)
	s := &Source{
		account: m[1], base: &url.URL{Scheme: "https", Host: host}, container: container, path: strings.Trim(key, "/"),
		share: m[2] == "file", env: env,
	}
	if query := u.Query(); query.Get("sig") != "" {
		s.shared = query
	}
	if service := env("AZURE_SERVICE_URL"); service != "" && !s.share {
		if s.base, err = url.Parse(strings.TrimSuffix(service, "/")); err != nil || s.base.Host == "" {
			return nil, errors.New("AZURE_SERVICE_URL is no address; write https://ACCOUNT.blob.core.windows.net")
		}
		s.account = cmp.Or(env("AZURE_ACCOUNT_NAME"), s.account)
	}
	return s, nil
}

func usage() error {
	return errors.New("it names no container; write https://ACCOUNT.blob.core.windows.net/CONTAINER/PATH")
}

// Trust is the system's.
func (*Source) Trust() transfer.Trust { return transfer.Trust{} }

const pageLimit = 32 << 20

// address below the account, with the shared access signature.
func (s *Source) address(name string, values url.Values) string {
	u := *s.base
	u.Path = strings.TrimSuffix(u.Path, "/") + "/" + s.container
	if name != "" {
		u.Path += "/" + name
	}
	all := url.Values{}
	for _, from := range []url.Values{s.shared, values} {
		for key, value := range from {
			all[key] = value
		}
	}
	u.RawQuery = strings.ReplaceAll(all.Encode(), "+", "%20")
	return u.String()
}

// List finds what is below the path, or the one thing that the path names.
func (s *Source) List(ctx context.Context, c *transfer.Client) ([]transfer.Item, error) {
	s.signer = newSigner(s, c.Aside(), time.Now)
	if s.share {
		return s.listShare(ctx, c)
	}
	blobs, err := s.blobs(ctx, c)
	if err != nil {
		return nil, err
	}
	var out []transfer.Item
	for _, b := range blobs {
		switch {
		case b.Name == s.path && !b.folder(blobs):
			item := s.item(b, path.Base(b.Name))
			item.Whole = true
			return []transfer.Item{item}, nil
		case b.folder(blobs), strings.HasSuffix(b.Name, "/"):
		case s.path == "":
			out = append(out, s.item(b, b.Name))
		default:
			if name, ok := strings.CutPrefix(b.Name, s.path+"/"); ok {
				out = append(out, s.item(b, strings.TrimLeft(name, "/")))
			}
		}
	}
	return out, nil
}

// blob is an entry of a listing.
type blob struct {
	Name       string
	Properties struct {
		Length int64  `xml:"Content-Length"`
		ETag   string `xml:"Etag"`
		MD5    string `xml:"Content-MD5"`
		Type   string `xml:"ResourceType"`
	}
}

// folder tells whether a blob stands for a directory.
func (b blob) folder(all []blob) bool {
	if b.Properties.Type == "directory" {
		return true
	}
	if b.Properties.Length > 0 {
		return false
	}
	for _, other := range all {
		if strings.HasPrefix(other.Name, b.Name+"/") {
			return true
		}
	}
	return false
}

func (s *Source) blobs(ctx context.Context, c *transfer.Client) ([]blob, error) {
	var out []blob
	for marker := ""; ; {
		values := url.Values{"restype": {"container"}, "comp": {"list"}, "prefix": {s.path}}
		if marker != "" {
			values.Set("marker", marker)
		}
		body, _, err := c.Do(ctx, transfer.Request{URL: s.address("", values), Sign: s.signer.sign}, pageLimit)
		if err != nil {
			return nil, err
		}
		var page struct {
			Blobs      []blob `xml:"Blobs>Blob"`
			NextMarker string
		}
		if xml.Unmarshal(body, &page) != nil {
			return nil, unlike()
		}
		out = append(out, page.Blobs...)
		if marker = page.NextMarker; marker == "" {
			return out, nil
		}
	}
}

func unlike() error { return &transfer.Problem{What: "the server does not answer as Azure does"} }

func (s *Source) item(b blob, name string) transfer.Item {
	return transfer.Item{Name: name, Object: transfer.Object{
		URL: s.address(b.Name, nil), Sign: s.signer.sign, Size: b.Properties.Length, ETag: b.Properties.ETag,
		Sums: transfer.Base64(transfer.MD5, b.Properties.MD5),
	}}
}

// deepest bounds directories below each other.
const deepest = 32

// listShare walks through directories, because a share does not list more than one. A path that is no directory is
// taken for a file.
func (s *Source) listShare(ctx context.Context, c *transfer.Client) ([]transfer.Item, error) {
	items, err := s.directory(ctx, c, s.path, 0)
	if s.path != "" && transfer.Status(err) == http.StatusNotFound {
		return []transfer.Item{{Name: path.Base(s.path), Whole: true, Object: transfer.Object{URL: s.address(s.path, nil), Sign: s.signer.sign, Size: -1}}}, nil
	}
	return items, err
}

func (s *Source) directory(ctx context.Context, c *transfer.Client, dir string, depth int) ([]transfer.Item, error) {
	if depth > deepest {
		return nil, errors.New("its directories are too deep below each other")
	}
	var out []transfer.Item
	for marker := ""; ; {
		values := url.Values{"restype": {"directory"}, "comp": {"list"}}
		if marker != "" {
			values.Set("marker", marker)
		}
		body, _, err := c.Do(ctx, transfer.Request{URL: s.address(dir, values), Sign: s.signer.sign}, pageLimit)
		if err != nil {
			return nil, err
		}
		var page struct {
			Files       []blob   `xml:"Entries>File"`
			Directories []string `xml:"Entries>Directory>Name"`
			NextMarker  string
		}
		if xml.Unmarshal(body, &page) != nil {
			return nil, unlike()
		}
		for _, f := range page.Files {
			full := path.Join(dir, f.Name)
			out = append(out, transfer.Item{Name: strings.TrimPrefix(strings.TrimPrefix(full, s.path), "/"), Object: transfer.Object{
				URL: s.address(full, nil), Sign: s.signer.sign, Size: f.Properties.Length,
			}})
		}
		for _, name := range page.Directories {
			below, err := s.directory(ctx, c, path.Join(dir, name), depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, below...)
		}
		if marker = page.NextMarker; marker == "" {
			return out, nil
		}
	}
}

// Next says what to do about an answer.
func (s *Source) Next(status int) string {
	from := "its credentials"
	if s.signer != nil {
		from = s.signer.from
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusBadRequest, http.StatusConflict:
		return "it was asked with " + from + "; check that they may list and read container " + s.container
	case http.StatusNotFound:
		if s.signer != nil && s.signer.how == anonymous {
			return "check container " + s.container + " and the path; without credentials only public containers are seen"
		}
		return "check container " + s.container + " and the path"
	case 0:
		return "check the name of the account " + s.account + ", and the network to it"
	}
	return "try again later"
}
