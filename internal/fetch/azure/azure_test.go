// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// TestStringToSign has the form that the documentation of Azure shows for a listing.
func TestStringToSign(t *testing.T) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"https://myaccount.blob.core.windows.net/mycontainer?restype=container&comp=metadata&timeout=20", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Ms-Date", "Fri, 26 Jun 2015 23:39:12 GMT")
	request.Header.Set("X-Ms-Version", "2015-02-21")
	want := "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n" +
		"/myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20"
	if diff := cmp.Diff(want, stringToSign(request, "myaccount")); diff != "" {
		t.Error(diff)
	}
	request.Header.Set("Range", "bytes=0-9")
	if got := stringToSign(request, "myaccount"); !strings.Contains(got, "\nbytes=0-9\nx-ms-date") {
		t.Errorf("the range is not signed: %q", got)
	}
	if _, err := sharedKey(request, "myaccount", "no base64!"); err == nil || strings.Contains(err.Error(), "no base64!") {
		t.Errorf("error %v", err)
	}
}

func TestIs(t *testing.T) {
	for address, want := range map[string]bool{
		"https://a.blob.core.windows.net/c/p":             true,
		"https://a.z12.blob.storage.azure.net/c/p":        true,
		"https://a.file.core.windows.net/s/p":             true,
		"abfss://c@a.dfs.core.windows.net/p":              true,
		"http://a.blob.core.windows.net/c/p":              false,
		"https://a.blob.core.windows.net.evil.test/c/p":   false,
		"https://evil.test/?x=.blob.core.windows.net/c/p": false,
		"https://blob.core.windows.net/c":                 false,
	} {
		if got := Is(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

// TestShare walks through a share whose signatures are checked by making them again.
func TestShare(t *testing.T) {
	key := base64.StdEncoding.EncodeToString([]byte("hush"))
	type file struct {
		Name       string
		Properties struct {
			Length int `xml:"Content-Length"`
		}
	}
	type listing struct {
		XMLName     xml.Name `xml:"EnumerationResults"`
		Files       []file   `xml:"Entries>File"`
		Directories []string `xml:"Entries>Directory>Name"`
	}
	model := file{Name: "model.onnx"}
	model.Properties.Length = 7
	directories := map[string]listing{
		"/share/iris":   {Files: []file{model}, Directories: []string{"a"}},
		"/share/iris/a": {Files: []file{{Name: "x"}}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		again, err := sharedKey(r, "account", key)
		if err != nil || r.Header.Get("Authorization") != again {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		l, ok := directories[r.URL.Path]
		if !ok || r.FormValue("restype") != "directory" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if err := xml.NewEncoder(w).Encode(l); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	for path, want := range map[string][]string{"iris": {"model.onnx", "a/x"}, "iris/": {"model.onnx", "a/x"}, "iris/model.onnx": {"model.onnx"}} {
		env := map[string]string{"AZURE_STORAGE_ACCESS_KEY": key}
		s, err := Parse("https://account.file.core.windows.net/share/"+path, func(name string) string { return env[name] })
		if err != nil {
			t.Fatal(err)
		}
		if s.base, err = url.Parse(server.URL); err != nil {
			t.Fatal(err)
		}
		client, err := transfer.New(2, s.Trust())
		if err != nil {
			t.Fatal(err)
		}
		items, err := s.List(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, item := range items {
			got = append(got, item.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}
