// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/download"
)

// sources is where this program is, below the directory in which it is called.
const sources = "./test/e2e/parts"

// writeLocks writes down what pip would install now, for the named sets or all of them, and for each version of Python. It
// takes a Python of each.
func writeLocks(ctx context.Context, names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(sets, func(s set) bool { return s.name == name }) {
			return fmt.Errorf("there is no set %s", name)
		}
	}
	for _, s := range sets {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		for _, version := range s.pythons {
			py, err := findPython(ctx, []string{version})
			if err != nil {
				return err
			}
			tell("resolving %s for Python %s", s.name, version)
			text, err := s.resolve(ctx, py)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(sources, s.lockFile(version)), []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// release is a package in one version, with the checksums of its files.
type release struct {
	name, version string
	sums          []string
}

// resolve asks pip for the versions. Pip names the one file that this machine would take; the index has those for other
// machines.
func (s set) resolve(ctx context.Context, py python) (lock, error) {
	var found []release
	err := download.Try(ctx, os.Stderr, func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, py.Executable, append([]string{"-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet",
			"--disable-pip-version-check", "--no-input", "--only-binary", ":all:", "--report", "-"}, s.packages...)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("pip cannot resolve %v: %w", s.packages, err)
		}
		found, err = readReport(out)
		return err
	})
	if err != nil {
		return "", err
	}
	index, err := py.index(ctx)
	if err != nil {
		return "", err
	}
	for i := range found {
		var page string
		err := download.Try(ctx, os.Stderr, func(ctx context.Context) (err error) {
			page, err = readPage(ctx, index, found[i].name)
			return err
		})
		if err != nil {
			return "", err
		}
		found[i].sums = append(found[i].sums, wheelSums(page, found[i], py.Version)...)
	}
	return s.write(py.Version, found), nil
}

func readReport(report []byte) ([]release, error) {
	var read struct {
		Install []struct {
			Metadata struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"metadata"`
			Download struct {
				Archive struct {
					Hashes map[string]string `json:"hashes"`
				} `json:"archive_info"`
			} `json:"download_info"`
		} `json:"install"`
	}
	if err := json.Unmarshal(report, &read); err != nil {
		return nil, fmt.Errorf("reading pip's report: %w", err)
	}
	var found []release
	for _, item := range read.Install {
		sum := item.Download.Archive.Hashes["sha256"]
		if sum == "" {
			return nil, fmt.Errorf("pip tells no checksum of %s", item.Metadata.Name)
		}
		found = append(found, release{normal(item.Metadata.Name), item.Metadata.Version, []string{sum}})
	}
	if len(found) == 0 {
		return nil, errors.New("pip reports no package")
	}
	return found, nil
}

var separators = regexp.MustCompile(`[-_.]+`)

// normal is the one of a package's names by which an index knows it.
func normal(name string) string { return strings.ToLower(separators.ReplaceAllString(name, "-")) }

// index is what pip is configured for. What comes later in pip's own list counts more, but for the environment.
func (p python) index(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, p.Executable, "-m", "pip", "config", "list").Output()
	if err != nil {
		return "", fmt.Errorf("asking pip for its configuration: %w", err)
	}
	var environment, files string
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch value = strings.Trim(value, `'"`); {
		case key == ":env:.index-url":
			environment = value
		case strings.HasSuffix(key, ".index-url"):
			files = value
		}
	}
	return strings.TrimSuffix(cmp.Or(environment, files, "https://pypi.org/simple"), "/"), nil
}

// readPage tells no address in its errors, because it may hold a password.
func readPage(ctx context.Context, index, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, index+"/"+name+"/", http.NoBody)
	if err != nil {
		return "", errors.New("the configured index of Python packages is not a URL")
	}
	request.Header.Set("Accept", "text/html")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("the index of Python packages does not answer: %w", errors.Unwrap(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the index of Python packages answers %s for %s", response.Status, name)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	return string(text), err
}

var wheelLink = regexp.MustCompile(`/([^/"'#]+)\.whl#sha256=([0-9a-f]{64})["']`)

// wheelSums are those of the files that pip may take for a version of Python on any of our machines.
func wheelSums(page string, of release, version string) []string {
	var sums []string
	for _, link := range wheelLink.FindAllStringSubmatch(page, -1) {
		parts := strings.Split(link[1], "-")
		if len(parts) < 5 || normal(parts[0]) != of.name || parts[1] != of.version {
			continue
		}
		if tags := parts[len(parts)-3:]; suits(tags[0], tags[1], tags[2], version) {
			sums = append(sums, link[2])
		}
	}
	return sums
}

// suits reads what a wheel's name says of the Python, of its interface and of the machine that it is for.
func suits(pythonTag, abi, platform, version string) bool {
	_, minor, _ := strings.Cut(version, ".")
	own := "cp3" + minor
	interpreter := slices.ContainsFunc(strings.Split(pythonTag, "."), func(tag string) bool {
		return tag == "py3" || tag == own && (abi == own || abi == "none") || strings.HasPrefix(tag, "cp3") && abi == "abi3"
	})
	machine := platform == "any" || strings.Contains(platform, "linux") && !strings.Contains(platform, "musl") &&
		(strings.Contains(platform, "x86_64") || strings.Contains(platform, "aarch64"))
	return interpreter && machine
}

// header begins every file. It says what was asked for, so that a change of that is not forgotten here.
func (s set) header(version string) string {
	return fmt.Sprintf("# %s for Python %s. Written by: go run %s lock %s\n", strings.Join(s.packages, " "), version, sources, s.name)
}

func (s set) write(version string, releases []release) lock {
	var out bytes.Buffer
	out.WriteString(s.header(version))
	slices.SortFunc(releases, func(a, b release) int { return strings.Compare(a.name, b.name) })
	for _, r := range releases {
		fmt.Fprintf(&out, "%s==%s", r.name, r.version)
		slices.Sort(r.sums)
		for _, sum := range slices.Compact(r.sums) {
			fmt.Fprintf(&out, " \\\n    --hash=sha256:%s", sum)
		}
		out.WriteByte('\n')
	}
	return lock(out.String())
}
