// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// settings are how a storage is reached.
type settings struct {
	endpoint            *url.URL // nil for AWS itself
	region              string
	virtual, accelerate bool
	anonymous           bool
	trust               transfer.Trust
}

// Variables that an entry of the storage secret stands for.
var entryKeys = []struct{ variable, key string }{
	{"AWS_ENDPOINT_URL", "endpoint_url"},
	{"AWS_ACCESS_KEY_ID", "access_key_id"},
	{"AWS_SECRET_ACCESS_KEY", "secret_access_key"},
	{"AWS_SESSION_TOKEN", "session_token"},
	{"AWS_DEFAULT_REGION", "region"},
	{"AWS_CA_BUNDLE", "ca_bundle"},
	{"S3_VERIFY_SSL", "verify_ssl"},
	{"awsAnonymousCredential", "anonymous"},
	{certificate, "certificate"},
}

// certificate is no variable of a pod: only entries have certificates themselves.
const certificate = "\x00certificate"

// withEntry looks at the entry of the storage secret, with what a service overrides, before it looks at variables.
func withEntry(env func(string) string) (func(string) string, error) {
	entry := map[string]any{}
	for _, name := range []string{"STORAGE_CONFIG", "STORAGE_OVERRIDE_CONFIG"} {
		text := env(name)
		if text == "" {
			continue
		}
		if json.Unmarshal([]byte(text), &entry) != nil { // the error would show a part of the secret
			return nil, fmt.Errorf("%s is no JSON object; correct the entry of the storage secret or storage.parameters", name)
		}
	}
	if kind, ok := entry["type"]; !ok || kind != "s3" {
		return env, nil
	}
	values := map[string]string{}
	for _, k := range entryKeys {
		if value, ok := entry[k.key]; ok && value != nil {
			values[k.variable] = fmt.Sprint(value)
		}
	}
	return func(name string) string {
		if value, ok := values[name]; ok {
			return value
		}
		return env(name)
	}, nil
}

func is(value, word string) bool { return strings.EqualFold(strings.TrimSpace(value), word) }

func off(value string) bool { return is(value, "false") || is(value, "0") }

func on(value string) bool { return is(value, "true") || is(value, "1") }

func readSettings(env func(string) string) (settings, error) {
	s := settings{
		region:     cmp.Or(env("AWS_DEFAULT_REGION"), env("AWS_REGION"), defaultRegion),
		virtual:    on(env("S3_USER_VIRTUAL_BUCKET")),
		accelerate: on(env("S3_USE_ACCELERATE")),
		anonymous:  on(env("awsAnonymousCredential")),
	}
	if err := s.readEndpoint(cmp.Or(env("AWS_ENDPOINT_URL_S3"), env("AWS_ENDPOINT_URL"), env("S3_ENDPOINT")), env("S3_USE_HTTPS")); err != nil {
		return s, err
	}
	switch file := env("AWS_CA_BUNDLE"); {
	case off(env("S3_VERIFY_SSL")):
		s.trust.Anyone = true
	case file != "":
		if !filepath.IsAbs(file) {
			file = filepath.Join(env("CA_BUNDLE_VOLUME_MOUNT_POINT"), file)
		}
		s.trust.Files = []string{file}
	}
	if !s.trust.Anyone {
		s.trust.PEM = []byte(env(certificate))
	}
	return s, nil
}

const defaultRegion = "us-east-1"

func (s *settings) readEndpoint(endpoint, useHTTPS string) error {
	if endpoint == "" {
		return nil
	}
	if !strings.Contains(endpoint, "://") {
		scheme := "https://"
		if off(useHTTPS) {
			scheme = "http://"
		}
		endpoint = scheme + endpoint
	}
	u, err := url.Parse(strings.TrimSuffix(endpoint, "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("the endpoint of the storage is no address; write S3_ENDPOINT as HOST:PORT or https://HOST")
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	if u.Host == "s3.amazonaws.com" && u.Scheme == "https" && s.region != defaultRegion {
		return nil // the old global address; buckets of other regions are not there
	}
	s.endpoint = u
	return nil
}

// domain of AWS in a region.
func domain(region string) string {
	if strings.HasPrefix(region, "cn-") {
		return "amazonaws.com.cn"
	}
	return "amazonaws.com"
}

// address of a key in a bucket, or of the bucket without one.
func (s *settings) address(bucket, key string) *url.URL {
	u := &url.URL{Scheme: "https"}
	inHost := true
	switch {
	case s.accelerate && s.endpoint == nil:
		u.Host = "s3-accelerate." + domain(s.region)
	case s.endpoint == nil:
		u.Host = "s3." + s.region + "." + domain(s.region)
		// A name with dots does not fit the certificate.
		inHost = !strings.Contains(bucket, ".")
	default:
		u.Scheme, u.Host, u.Path = s.endpoint.Scheme, s.endpoint.Host, s.endpoint.Path
		inHost = s.virtual && net.ParseIP(s.endpoint.Hostname()) == nil
	}
	prefix := u.Path
	if inHost {
		u.Host = bucket + "." + u.Host
	} else {
		prefix += "/" + bucket
	}
	u.Path = prefix + "/" + key
	u.RawPath = escape(u.Path, true)
	return u
}
