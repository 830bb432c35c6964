// SPDX-License-Identifier: Apache-2.0

// Package examples proves that the manifests people start from, and those they bring along, are taken as they are:
// offline, and by a real API server with the webhooks of the manager. It holds tests only.
package examples

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

const (
	// ours are the examples of this repository.
	ours = "../../examples"
	// theirs are manifests that users of the five systems already have. They are kept beside the repository.
	theirs = "theirs"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// manifest is one object of a file.
type manifest struct {
	// name is the file below its folder, with the number of the document where there are several.
	name string
	text []byte
	raw  []byte // JSON
	*unstructured.Unstructured
}

// read returns all manifests below a folder, or skips the test when the folder belongs to somebody else and is absent.
func read(t *testing.T, dir string) []manifest {
	t.Helper()
	if dir == theirs {
		dir = checkout.Manifests(t)
	}
	var all []manifest
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		found, err := documents(name, path)
		all = append(all, found...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("%s holds no manifest", dir)
	}
	return all
}

func documents(name, path string) ([]manifest, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []manifest
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		m := manifest{name: strings.TrimSuffix(name, ".yaml"), text: doc, Unstructured: &unstructured.Unstructured{}}
		if n > 1 {
			m.name = fmt.Sprintf("%s-%d", m.name, n)
		}
		if m.raw, err = yaml.YAMLToJSONStrict(doc); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if err := utiljson.Unmarshal(m.raw, &m.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(m.Object) > 0 {
			out = append(out, m)
		}
	}
}
