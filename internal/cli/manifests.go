// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// mostInput bounds what is read in all; a single object is bounded again by
// admission.
const mostInput = 64 << 20

// manifest is one document of a file.
type manifest struct {
	// from says where it stands: file.yaml, or file.yaml document 2.
	from string
	raw  []byte // JSON
	*unstructured.Unstructured
}

// readManifests reads files, folders (all .yaml, .yml and .json in them) and,
// for "-", the standard input.
func readManifests(paths []string, stdin io.Reader) ([]*manifest, error) {
	left := int64(mostInput)
	var out []*manifest
	for _, path := range paths {
		files, err := expand(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := readFile(file, stdin, left)
			if err != nil {
				return nil, err
			}
			left -= int64(len(text))
			docs, err := split(file, text)
			if err != nil {
				return nil, err
			}
			out = append(out, docs...)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no object found in what -f names")
	}
	return out, nil
}

func expand(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p)) {
			files = append(files, p)
		}
		return err
	})
	return files, err
}

func readFile(path string, stdin io.Reader, most int64) ([]byte, error) {
	r := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // only read
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s: more than %d MiB of manifests; name fewer files", path, mostInput>>20)
	}
	return text, nil
}

// split takes the documents of a file apart. Empty ones do not count.
func split(file string, text []byte) ([]*manifest, error) {
	var out []*manifest
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		from := file
		if n > 1 {
			from = fmt.Sprintf("%s document %d", file, n)
		}
		if err != nil {
			return nil, &Refusal{From: from, Err: err}
		}
		found, err := parse(from, doc)
		if err != nil {
			return nil, &Refusal{From: from, Err: err}
		}
		out = append(out, found...)
	}
}

// parse reads one document: nothing, an object, or a list of them.
func parse(from string, doc []byte) ([]*manifest, error) {
	if !utf8.Valid(doc) {
		return nil, notUTF8(doc)
	}
	raw, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, fmt.Errorf("not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if string(bytes.TrimSpace(raw)) == "null" {
		return nil, nil
	}
	var body any
	if err := utiljson.Unmarshal(raw, &body); err != nil {
		return nil, err
	}
	object, ok := body.(map[string]any)
	if !ok {
		return nil, errors.New("not an object; a manifest has apiVersion, kind and metadata")
	}
	u := &unstructured.Unstructured{Object: object}
	if u.GetAPIVersion() == "" || u.GetKind() == "" {
		return nil, errors.New("apiVersion and kind must both be set")
	}
	if items, ok := object["items"].([]any); ok && strings.HasSuffix(u.GetKind(), "List") {
		return listed(from, u, items)
	}
	return []*manifest{{from: from, raw: raw, Unstructured: u}}, nil
}

// listed takes a list apart. Items of a list of one kind need not say which it is.
func listed(from string, list *unstructured.Unstructured, items []any) ([]*manifest, error) {
	var out []*manifest
	for i, item := range items {
		at := fmt.Sprintf("%s item %d", from, i+1)
		object, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("item %d is not an object", i+1)
		}
		u := &unstructured.Unstructured{Object: object}
		if kind := strings.TrimSuffix(list.GetKind(), "List"); u.GetKind() == "" && kind != "" {
			u.SetAPIVersion(list.GetAPIVersion())
			u.SetKind(kind)
		}
		raw, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		more, err := parse(at, raw)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
		out = append(out, more...)
	}
	return out, nil
}

var key = regexp.MustCompile(`([A-Za-z0-9_./-]+)"?\s*:[^:]*$`)

// notUTF8 says where a document is not text, before a YAML reader says only
// that it is not.
func notUTF8(doc []byte) error {
	at := 0
	for at < len(doc) {
		r, size := utf8.DecodeRune(doc[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	line := doc[bytes.LastIndexByte(doc[:at], '\n')+1 : at]
	where := fmt.Sprintf("line %d", bytes.Count(doc[:at], []byte("\n"))+1)
	if m := key.FindSubmatch(line); m != nil {
		where += ", field " + string(m[1])
	}
	return fmt.Errorf("%s: not valid UTF-8; save the file as UTF-8", where)
}
