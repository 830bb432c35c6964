// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestWheelSums(t *testing.T) {
	var page strings.Builder
	sum := func(i int) string { return strings.Repeat(string("0123456789abcdef"[i]), 64) }
	for i, file := range []string{
		"a_b-1.0-py3-none-any.whl", "A.B-1.0-2-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "a_b-1.0-cp38-abi3-manylinux_2_28_aarch64.whl",
		"a_b-1.0-py2.py3-none-any.whl",
		// Of another version, Python, interface or machine, or no wheel.
		"a_b-1.0.1-py3-none-any.whl", "a_b-1.0-cp313-cp313-manylinux_2_17_x86_64.whl", "a_b-1.0-cp312-cp312t-manylinux_2_17_x86_64.whl",
		"a_b-1.0-cp312-cp312-musllinux_1_2_x86_64.whl", "a_b-1.0-cp312-cp312-win_amd64.whl", "a_b-1.0-py2-none-any.whl", "a_b-1.0.tar.gz",
	} {
		page.WriteString(`<a href="https://files.example/x/` + file + "#sha256=" + sum(i) + `" data-requires-python="&gt;=3.10">` + file + "</a>\n")
	}
	got := strings.Join(wheelSums(page.String(), release{name: "a-b", version: "1.0"}, "3.12"), " ")
	if want := strings.Join([]string{sum(0), sum(1), sum(2), sum(3)}, " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestReadReport(t *testing.T) {
	const item = `{"metadata": {"name": "Some_Name", "version": "1.0"}, "download_info": {"archive_info": {"hashes": {"sha256": "ab"}}}}`
	found, err := readReport([]byte(`{"install": [` + item + `]}`))
	if err != nil || len(found) != 1 || found[0].name != "some-name" || found[0].version != "1.0" || found[0].sums[0] != "ab" {
		t.Errorf("%v, %v", found, err)
	}
	for _, report := range []string{"", `{"install": []}`, `{"install": [{"metadata": {"name": "x", "version": "1"}}]}`} {
		if found, err := readReport([]byte(report)); err == nil {
			t.Errorf("%s: %v", report, found)
		}
	}
}

func TestIndexOfPip(t *testing.T) {
	for _, test := range []struct{ list, want string }{
		{"", "https://pypi.org/simple"},
		{"global.cert='/x'\nglobal.index-url='https://a.example/simple/'", "https://a.example/simple"},
		{"global.index-url='https://a.example'\nuser.index-url='https://b.example'\nuser.extra-index-url='https://d.example'", "https://b.example"},
		{":env:.index-url='https://c.example'\nglobal.index-url='https://a.example'", "https://c.example"},
	} {
		path := t.TempDir() + "/python"
		write(t, path, "#!/bin/sh\ncat <<'end'\n"+test.list+"\nend\n")
		if got, err := (python{Executable: path}).index(t.Context()); err != nil || got != test.want {
			t.Errorf("%s: %s, %v", test.list, got, err)
		}
	}
}

// TestReadPage: no error tells the password of the index.
func TestReadPage(t *testing.T) {
	index := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/simple/there/" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("a page"))
	}))
	defer index.Close()
	if text, err := readPage(t.Context(), index.URL+"/simple", "there"); err != nil || text != "a page" {
		t.Errorf("%s, %v", text, err)
	}
	secret := strings.Replace(index.URL, "//", "//user:secret@", 1)
	for _, index := range []string{secret, "http://user:secret@127.0.0.1:1", "http://user:secret@%"} {
		if _, err := readPage(t.Context(), index, "missing"); err == nil || strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
	}
}
