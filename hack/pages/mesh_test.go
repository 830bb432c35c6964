// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var meshWord = regexp.MustCompile(`\b(?:MM_[A-Z_]+|INTERNAL_[A-Z_]+|SHUTDOWN_TIMEOUT_MS|KV_STORE|modelmesh_[a-z_]+)\b`)

// TestMeshPage looks for the variables and metrics that the page of the mesh names in the mesh itself.
func TestMeshPage(t *testing.T) {
	files, err := filepath.Glob("internal/modelmesh/mesh/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") {
			source.Write(text)
		}
	}
	page, err := os.ReadFile("docs/mesh.md")
	if err != nil {
		t.Fatal(err)
	}
	words := meshWord.FindAllString(string(page), -1)
	if len(words) < 50 {
		t.Errorf("found only %d words", len(words))
	}
	for _, word := range append(words, "MM_NONSENSE") {
		// Metrics are put together from a prefix and a name, variables of files from a name and _PATH.
		name := strings.TrimSuffix(strings.TrimPrefix(word, "modelmesh_"), "_PATH")
		known := strings.Contains(source.String(), `"`+word+`"`) || strings.Contains(source.String(), `"`+name+`"`)
		if known == (word == "MM_NONSENSE") {
			t.Errorf("docs/mesh.md names %s; the mesh knows it: %v", word, known)
		}
	}
}
