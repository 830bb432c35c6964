// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"

	"github.com/modelplane/modelplane/internal/kube/address"
)

const (
	// listName is the file in the directory of the list.
	listName = "models.json"
	// mostList and mostModels bound the list; a ConfigMap has a mebibyte.
	mostList   = 4 << 20
	mostModels = 10_000
)

// Spec is how a model is described. Framework and memory matter only because another one is another model.
type Spec struct {
	StorageURI string `json:"storageUri"`
	Framework  string `json:"framework"`
	Memory     text   `json:"memory"`
}

// text takes numbers, too.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*t = text(s)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(raw, &n); err != nil {
		return errors.New("the memory of a model is neither a text nor a number")
	}
	*t = text(n)
	return nil
}

var nameShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9_-]+$`) })

// schemes that models are fetched from. Paths of this container are not among them: they hold secrets.
var schemes = []string{"gs://", "http://", "https://", "s3://"}

func (s Spec) check() error {
	for _, scheme := range schemes {
		if strings.HasPrefix(s.StorageURI, scheme) {
			return nil
		}
	}
	return fmt.Errorf("models cannot be fetched from %s; use an address that begins with one of %s", address.Shown(s.StorageURI), strings.Join(schemes, ", "))
}

// fingerprint recognises a file that has not changed. Kubernetes replaces the list as a whole, which makes another file.
type fingerprint struct {
	info os.FileInfo
	text string
}

// read returns the list if it has changed. One that cannot be used is read again.
func (f *fingerprint) read(file string) (list map[string]Spec, skipped []string, changed bool, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, nil, false, fmt.Errorf("read the list of models: %w", err)
	}
	if f.info != nil && os.SameFile(info, f.info) && info.ModTime().Equal(f.info.ModTime()) && info.Size() == f.info.Size() {
		return nil, nil, false, nil
	}
	raw, err := readBounded(file)
	if err != nil {
		return nil, nil, false, err
	}
	if f.info != nil && string(raw) == f.text {
		f.info = info
		return nil, nil, false, nil
	}
	if list, skipped, err = Parse(raw); err != nil {
		return nil, nil, false, err
	}
	f.info, f.text = info, string(raw)
	return list, skipped, true, nil
}

func readBounded(file string) ([]byte, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the list of models: %w", err)
	}
	defer in.Close() //nolint:errcheck // only read
	raw, err := io.ReadAll(io.LimitReader(in, mostList+1))
	if err != nil {
		return nil, fmt.Errorf("read the list of models: %w", err)
	}
	if len(raw) > mostList {
		return nil, fmt.Errorf("the list of models is longer than %d bytes", mostList)
	}
	return raw, nil
}

// Parse reads the list, and tells which entries it left out because they cannot be models.
func Parse(raw []byte) (list map[string]Spec, skipped []string, err error) {
	var entries []struct {
		Name string `json:"modelName"`
		Spec Spec   `json:"modelSpec"`
	}
	if json.Unmarshal(raw, &entries) != nil { // the error would show a part of an address
		return nil, nil, errors.New("the list of models is no list of objects with modelName and modelSpec")
	}
	if len(entries) > mostModels {
		return nil, nil, fmt.Errorf("the list has %d models, which are more than %d", len(entries), mostModels)
	}
	list = make(map[string]Spec, len(entries))
	for _, e := range entries {
		if _, twice := list[e.Name]; twice || !nameShape().MatchString(e.Name) {
			skipped = append(skipped, e.Name)
			continue
		}
		list[e.Name] = e.Spec
	}
	return list, skipped, nil
}
