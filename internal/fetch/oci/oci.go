// SPDX-License-Identifier: Apache-2.0

// Package oci finds the layers of a model in a registry: an image that has the model in its directory models, or an
// artifact whose layers are files with names.
package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// Source is an image or artifact.
type Source struct {
	registry, repository, reference string
	insecure                        bool
	base                            string // of the registry, once it is known
	env                             func(string) string
	auth                            *auth
}

// Layer of a model.
type Layer struct {
	transfer.Object
	// Title is the name of the file that the layer is; empty for a layer of a file system.
	Title string
}

var (
	nameShape = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	})
	tagShape    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`) })
	digestShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) })
)

// Parse reads oci://REGISTRY/REPOSITORY[:TAG][@DIGEST].
func Parse(address string, env func(string) string) (*Source, error) {
	rest := address[strings.Index(address, "://")+3:]
	s := &Source{reference: "latest", env: env, insecure: strings.EqualFold(env("KSERVE_OCI_INSECURE_REGISTRY"), "true")}
	name, digest, pinned := strings.Cut(rest, "@")
	registry, repository, ok := strings.Cut(name, "/")
	if !ok || !strings.ContainsAny(registry, ".:") && registry != "localhost" {
		registry, repository = "docker.io", name
	}
	if i := strings.LastIndex(repository, ":"); i >= 0 {
		s.reference, repository = repository[i+1:], repository[:i]
		if !tagShape().MatchString(s.reference) {
			return nil, usage()
		}
	}
	if pinned {
		s.reference = digest
	}
	if registry == "docker.io" && !strings.Contains(repository, "/") {
		repository = "library/" + repository
	}
	if !nameShape().MatchString(repository) || pinned && !digestShape().MatchString(digest) || strings.ContainsAny(registry, "?#\\% ") {
		return nil, usage()
	}
	s.registry, s.repository = registry, repository
	return s, nil
}

func usage() error {
	return errors.New("it names no image; write oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:DIGEST")
}

// Trust is the system's, unless the platform is told that registries need not be trusted.
func (s *Source) Trust() transfer.Trust { return transfer.Trust{Anyone: s.insecure} }

const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	listType     = "application/vnd.docker.distribution.manifest.list.v2+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	dockerType   = "application/vnd.docker.distribution.manifest.v2+json"
	titleKey     = "org.opencontainers.image.title"
	manifestSize = 4 << 20
)

// descriptor points to something in the registry.
type descriptor struct {
	MediaType, Digest string
	Size              int64
	Annotations       map[string]string
	Platform          struct{ Architecture, OS string }
}

// manifest of an image, an artifact, or several of them.
type manifest struct {
	MediaType string
	Manifests []descriptor
	Layers    []descriptor
}

// Layers lists the layers from the lowest to the highest.
func (s *Source) Layers(ctx context.Context, c *transfer.Client) ([]Layer, error) {
	s.auth = newAuth(s, c.Aside())
	if err := s.reach(ctx, c); err != nil {
		return nil, err
	}
	m, err := s.manifest(ctx, c, s.reference)
	if err != nil {
		return nil, err
	}
	if len(m.Manifests) > 0 {
		one, err := forPlatform(m.Manifests)
		if err != nil {
			return nil, err
		}
		if m, err = s.manifest(ctx, c, one); err != nil {
			return nil, err
		}
	}
	var out []Layer
	for _, d := range m.Layers {
		if !digestShape().MatchString(d.Digest) {
			return nil, fmt.Errorf("a layer has digest %q, which is no SHA-256; push the image again", d.Digest)
		}
		if strings.HasSuffix(d.MediaType, "zstd") {
			return nil, errors.New("its layers are compressed with zstd; push it with gzip instead")
		}
		out = append(out, Layer{Title: d.Annotations[titleKey], Object: transfer.Object{
			URL: s.base + "/v2/" + s.repository + "/blobs/" + d.Digest, Sign: s.auth.sign, Size: d.Size,
			Sums: transfer.Hex(transfer.SHA256, strings.TrimPrefix(d.Digest, "sha256:")),
		}})
	}
	return out, nil
}

// reach finds out how the registry is spoken to: protected, or in the open where that is allowed.
func (s *Source) reach(ctx context.Context, c *transfer.Client) error {
	host := s.registry
	if host == "docker.io" {
		host = "registry-1.docker.io"
	}
	s.base = "https://" + host
	if !s.insecure {
		return nil
	}
	_, err := c.Once(ctx, transfer.Request{URL: s.base + "/v2/"}, manifestSize, c.Stall)
	if err != nil && transfer.Status(err) == 0 && ctx.Err() == nil {
		s.base = "http://" + host
	}
	return ctx.Err()
}

func (s *Source) manifest(ctx context.Context, c *transfer.Client, reference string) (*manifest, error) {
	body, _, err := c.Do(ctx, transfer.Request{
		URL: s.base + "/v2/" + s.repository + "/manifests/" + reference, Sign: s.auth.sign,
		Header: http.Header{"Accept": {indexType, listType, manifestType, dockerType}},
	}, manifestSize)
	if err != nil {
		return nil, err
	}
	if digestShape().MatchString(reference) && !transfer.Fits(transfer.Hex(transfer.SHA256, strings.TrimPrefix(reference, "sha256:")), body) {
		return nil, errors.New("the registry sends another manifest than the digest names; ask those who run it")
	}
	m := &manifest{}
	if json.Unmarshal(body, m) != nil || len(m.Layers) == 0 && len(m.Manifests) == 0 {
		return nil, errors.New("the registry has no image of that name that could hold a model; push it again")
	}
	return m, nil
}

// forPlatform picks what is for this machine. A model is the same everywhere, so that a single one will do.
func forPlatform(all []descriptor) (string, error) {
	var usable []descriptor
	for _, d := range all {
		if d.Platform.OS == "unknown" {
			continue // attestations
		}
		if d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH {
			return d.Digest, nil
		}
		usable = append(usable, d)
	}
	if len(usable) == 1 {
		return usable[0].Digest, nil
	}
	return "", fmt.Errorf("it is not built for linux/%s; build it for that as well", runtime.GOARCH)
}

// Next says what to do about an answer.
func (s *Source) Next(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "check the image pull secret of the service account for " + s.registry
	case http.StatusNotFound:
		return "check the name and the tag"
	case 0:
		return "check the name of the registry, its certificate, and the network to it"
	}
	return "try again later"
}
