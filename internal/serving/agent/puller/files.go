// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// folder has a directory for each model, and one for what is on its way.
type folder string

const (
	// markPrefix begins the name of the mark that a model is complete.
	markPrefix = "SUCCESS."
	// aside has models that are not complete, and those that go.
	aside = ".modelplane-pull"
	// mostMark bounds a mark.
	mostMark = 64 << 10
	dirMode  = 0o755
	fileMode = 0o644
)

// open makes the folder, throws away what an earlier run left on its way, and tells which models are complete.
func (f folder) open() (map[string]Spec, error) {
	if err := os.MkdirAll(string(f), dirMode); err != nil {
		return nil, fmt.Errorf("the directory for models cannot be made: %w", err)
	}
	if err := os.RemoveAll(filepath.Join(string(f), aside)); err != nil {
		return nil, fmt.Errorf("the directory for models cannot be written: %w", err)
	}
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return nil, fmt.Errorf("the directory for models cannot be read: %w", err)
	}
	out := map[string]Spec{}
	for _, entry := range entries {
		if spec, ok := f.mark(entry.Name()); ok && entry.IsDir() && nameShape().MatchString(entry.Name()) {
			out[entry.Name()] = spec
		}
	}
	return out, nil
}

// mark is what a model was fetched as, if it is complete.
func (f folder) mark(name string) (Spec, bool) {
	marks, err := filepath.Glob(filepath.Join(string(f), name, markPrefix+"*"))
	if err != nil {
		return Spec{}, false
	}
	for _, mark := range marks {
		info, err := os.Lstat(mark)
		if err != nil || !info.Mode().IsRegular() || info.Size() > mostMark {
			continue
		}
		raw, err := os.ReadFile(mark)
		var spec Spec
		if err == nil && json.Unmarshal(raw, &spec) == nil && spec.StorageURI != "" {
			return spec, true
		}
	}
	return Spec{}, false
}

func (f folder) staged(name string) string { return filepath.Join(string(f), aside, name) }

// stage makes an empty place for the files of a model.
func (f folder) stage(name string) (string, error) {
	if err := f.unstage(name); err != nil {
		return "", err
	}
	if err := os.MkdirAll(f.staged(name), dirMode); err != nil {
		return "", fmt.Errorf("the directory for the model's files cannot be made: %w", err)
	}
	return f.staged(name), nil
}

func (f folder) unstage(name string) error {
	if err := os.RemoveAll(f.staged(name)); err != nil {
		return fmt.Errorf("what was fetched cannot be removed: %w", err)
	}
	return nil
}

// swap puts the staged files into their place, with a mark. Killed anywhere in between, there is a complete model or none.
func (f folder) swap(name string, spec Spec) error {
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(raw)
	staged, place, old := f.staged(name), filepath.Join(string(f), name), f.staged(name+".old")
	if err := os.WriteFile(filepath.Join(staged, markPrefix+hex.EncodeToString(sum[:])), raw, fileMode); err != nil {
		return fmt.Errorf("the mark of a complete model cannot be written: %w", err)
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("the model's old files cannot be removed: %w", err)
	}
	if err := os.Rename(place, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the model's old files cannot be moved: %w", err)
	}
	if err := os.Rename(staged, place); err != nil {
		return fmt.Errorf("the model's files cannot be moved to their place: %w", err)
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("the model's old files cannot be removed: %w", err)
	}
	return nil
}

// remove takes a model away.
func (f folder) remove(name string) error {
	if strings.ContainsAny(name, "/\\") || name == "" || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%q is no name of a model", name)
	}
	if err := os.RemoveAll(filepath.Join(string(f), name)); err != nil {
		return fmt.Errorf("the model's files cannot be removed: %w", err)
	}
	return nil
}
