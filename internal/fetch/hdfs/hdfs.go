// SPDX-License-Identifier: Apache-2.0

// Package hdfs finds models in HDFS, by its REST interface: a file, or all files below a directory. Clusters that want
// Kerberos are not for it.
package hdfs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// secretDir is where the secret of a service account is mounted.
const secretDir = "/var/secrets/kserve-hdfscreds"

// Source is a model in HDFS.
type Source struct {
	nodes  []string // name nodes, one of which is active
	path   string
	user   string // in whose name, if not one's own
	header http.Header
	trust  transfer.Trust
	node   string // the active one
}

// Parse reads hdfs://PATH or webhdfs://PATH. Where the cluster is, is in the storage secret or in the mounted one.
func Parse(address string, env func(string) string) (*Source, error) {
	values, err := settings(env)
	if err != nil {
		return nil, err
	}
	if values["KERBEROS_PRINCIPAL"] != "" {
		return nil, errors.New("its cluster wants Kerberos, which is not supported; use a ClusterStorageContainer with an image that knows it")
	}
	s := &Source{user: values["USER_PROXY"], header: http.Header{}}
	s.path = path.Join("/", values["HDFS_ROOTPATH"], address[strings.Index(address, "://")+3:])
	for _, node := range strings.Split(values["HDFS_NAMENODE"], ";") {
		if u, err := url.Parse(strings.TrimSpace(node)); err == nil && u.Host != "" {
			s.nodes = append(s.nodes, strings.TrimSuffix(strings.TrimSpace(node), "/"))
		}
	}
	if len(s.nodes) == 0 {
		return nil, errors.New("HDFS_NAMENODE is missing in the secret, or no address; write http://HOST:PORT")
	}
	if text := values["HEADERS"]; text != "" {
		var headers map[string]string
		if json.Unmarshal([]byte(text), &headers) != nil { // the error would show a part of the secret
			return nil, errors.New("HEADERS in the secret is no JSON object of texts; correct it")
		}
		for name, value := range headers {
			s.header.Set(name, value)
		}
	}
	s.trust = transfer.Trust{
		PEM: []byte(values["TLS_CA"]), Anyone: strings.EqualFold(values["TLS_SKIP_VERIFY"], "true"),
		Certificate: []byte(values["TLS_CERT"]), Key: []byte(values["TLS_KEY"]),
	}
	return s, nil
}

// names of what can be set, and whether it is in base64 in an entry of the storage secret.
var names = map[string]bool{
	"HDFS_NAMENODE": false, "USER_PROXY": false, "HDFS_ROOTPATH": false, "HEADERS": false, "TLS_SKIP_VERIFY": false,
	"KERBEROS_PRINCIPAL": false, "TLS_CERT": true, "TLS_KEY": true, "TLS_CA": true,
}

func settings(env func(string) string) (map[string]string, error) {
	out := map[string]string{}
	entry := map[string]any{}
	for _, name := range []string{"STORAGE_CONFIG", "STORAGE_OVERRIDE_CONFIG"} {
		if text := env(name); text != "" && json.Unmarshal([]byte(text), &entry) != nil {
			return nil, fmt.Errorf("%s is no JSON object; correct the entry of the storage secret or storage.parameters", name)
		}
	}
	if kind := entry["type"]; kind == "hdfs" || kind == "webhdfs" {
		for name, encoded := range names {
			value, ok := entry[name].(string)
			if !ok {
				continue
			}
			if encoded {
				content, err := base64.StdEncoding.DecodeString(value)
				if err != nil {
					return nil, fmt.Errorf("%s in the storage secret is not in base64; encode it", name)
				}
				value = string(content)
			}
			out[name] = strings.TrimSpace(value)
		}
		return out, nil
	}
	dir := env("HDFS_SECRET_DIR")
	if dir == "" {
		dir = secretDir
	}
	for name := range names {
		if content, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			out[name] = strings.TrimSpace(string(content))
		}
	}
	return out, nil
}

// Trust is what the secret says.
func (s *Source) Trust() transfer.Trust { return s.trust }

const (
	pageLimit = 64 << 20
	deepest   = 32
)

// status of a file or directory.
type status struct {
	Suffix string `json:"pathSuffix"`
	Type   string `json:"type"`
	Length int64  `json:"length"`
}

func (s *Source) address(name, operation string) string {
	values := url.Values{"op": {operation}}
	if s.user != "" {
		values.Set("doas", s.user)
	}
	u := url.URL{Path: path.Join("/webhdfs/v1", name)}
	return s.node + u.EscapedPath() + "?" + values.Encode()
}

func (s *Source) ask(ctx context.Context, c *transfer.Client, name, operation string, answer any) error {
	body, _, err := c.Do(ctx, transfer.Request{URL: s.address(name, operation), Header: s.header}, pageLimit)
	if err != nil {
		return err
	}
	if json.Unmarshal(body, answer) != nil {
		return &transfer.Problem{What: "the server does not answer as HDFS does"}
	}
	return nil
}

// List finds the files. Of several name nodes the first that does not say to be on standby is asked.
func (s *Source) List(ctx context.Context, c *transfer.Client) ([]transfer.Item, error) {
	var found struct {
		FileStatus status
	}
	var err error
	for _, node := range s.nodes {
		s.node = node
		err = s.ask(ctx, c, s.path, "GETFILESTATUS", &found)
		var p *transfer.Problem
		if standby := errors.As(err, &p) && (p.Code == "StandbyException" || p.Status == 0); !standby {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if found.FileStatus.Type == "FILE" {
		item := s.item(s.path, path.Base(s.path), found.FileStatus.Length)
		item.Whole = true
		return []transfer.Item{item}, nil
	}
	return s.directory(ctx, c, "", 0)
}

func (s *Source) directory(ctx context.Context, c *transfer.Client, dir string, depth int) ([]transfer.Item, error) {
	if depth > deepest {
		return nil, errors.New("its directories are too deep below each other")
	}
	var listing struct {
		FileStatuses struct{ FileStatus []status }
	}
	if err := s.ask(ctx, c, path.Join(s.path, dir), "LISTSTATUS", &listing); err != nil {
		return nil, err
	}
	var out []transfer.Item
	for _, entry := range listing.FileStatuses.FileStatus {
		name := path.Join(dir, entry.Suffix)
		if entry.Type != "DIRECTORY" {
			out = append(out, s.item(path.Join(s.path, name), name, entry.Length))
			continue
		}
		below, err := s.directory(ctx, c, name, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, below...)
	}
	return out, nil
}

func (s *Source) item(full, name string, size int64) transfer.Item {
	return transfer.Item{Name: name, Object: transfer.Object{URL: s.address(full, "OPEN"), Header: s.header, Size: size}}
}

// Next says what to do about an answer.
func (s *Source) Next(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "check the secret for HDFS, and who may read the path"
	case http.StatusNotFound:
		return "check the path " + s.path
	case 0:
		return "check HDFS_NAMENODE in the secret, and the network to it"
	}
	return "try again later, or ask those who run the cluster"
}
