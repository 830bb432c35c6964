// SPDX-License-Identifier: Apache-2.0

package address

import (
	"strings"
	"testing"
)

func TestShown(t *testing.T) {
	for address, want := range map[string]string{
		"https://host/a/b.tar":                            "https://host/a/b.tar",
		"https://host:8443/a%20b":                         "https://host:8443/a%20b",
		"https://[::1]:80/x@y":                            "https://[::1]:80/x@y",
		"s3://bucket/a@b:c":                               "s3://bucket/a@b:c",
		"oci://registry:5000/x@sha256:abc":                "oci://registry:5000/x@sha256:abc",
		"hf://org/model:rev":                              "hf://org/model:rev",
		"/mnt/models/a@b:c":                               "/mnt/models/a@b:c",
		"https://user:hush@host/x?sig=hush#hush":          "https://host/x",
		"https://user@host/x?mail=a@b&sig=hush":           "https://host/x",
		"https://host/%zz?mail=a@b&sig=hush":              "https://host/%zz",
		"https://user:hush%zz@host/x":                     "https://host/x",
		"https://user:hu/sh@host/x":                       "https://host/x",
		"https://user:hu@sh/hush@host/x%zz":               "https://host/x%zz",
		"https://user:hush?hush@host/x?sig=hush":          "https://…",
		"https://user:hush#hush@host":                     "https://…",
		"https://user:hush%zz@host/x?mail=a@b&sig=hush":   "https://…",
		"https://user:hush[@host:80/x":                    "https://host:80/x",
		"https://user:hush^ hush@host/x":                  "https://host/x",
		"https://user:hush\nhush@host/x":                  "https://host/x",
		"https://user:hush":                               "https://user:…",
		"https://user:hush/x":                             "https://user:…",
		"https://%zz:hush@host:port/x":                    "https://host:port/x",
		"https:/user:hush@host/x":                         "…@host/x",
		"https:user:hush@host/x?sig=hush":                 "…@host/x",
		"user:hush@host/x":                                "…@host/x",
		"postgresql+psycopg://user:hu#sh%@db:5432/mlflow": "postgresql+psycopg://…",
	} {
		got := Shown(address)
		if got != want {
			t.Errorf("%s is shown as %s, want %s", address, got, want)
		}
		if strings.Contains(got, "hush") {
			t.Errorf("%s shows a secret", got)
		}
	}
}

func TestHide(t *testing.T) {
	for text, want := range map[string]string{
		`parse "https://user:hush%zz@host/x": invalid URL escape`:  `parse "https://…@host/x": invalid URL escape`,
		"cannot open postgresql://u:hu/sh@db/x, or https://host/y": "cannot open postgresql://…@db/x, or https://host/y",
		"pull oci://registry:5000/x@sha256:abc: denied":            "pull oci://registry:5000/x@sha256:abc: denied",
		"https://user:hu@sh@host/x failed":                         "https://…@host/x failed",
		"write http://HOST:PORT, mail a@b":                         "write http://HOST:PORT, mail a@b",
		"no address at all: a@b":                                   "no address at all: a@b",
	} {
		if got := Hide(text); got != want {
			t.Errorf("%s\nbecomes %s\nwant    %s", text, got, want)
		}
	}
}

// FuzzShown: of an address that cannot be read, or in any other way, nothing after a first colon in the user part shows.
func FuzzShown(f *testing.F) {
	f.Add("%zz")
	f.Add("/?#@")
	f.Fuzz(func(t *testing.T, noise string) {
		if strings.Contains(noise, "://") {
			t.Skip("another address")
		}
		address := "https://user:hush" + noise + "@host/x"
		if got := Shown(address); strings.Contains(got, "hush") {
			t.Errorf("%q is shown as %q", address, got)
		}
	})
}
