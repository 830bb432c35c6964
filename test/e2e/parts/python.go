// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/download"
)

// python is an interpreter of this machine, as it describes itself.
type python struct {
	Executable string // without symbolic links
	Version    string // 3.12
	Stdlib     string // directory of the standard library
	Pip        bool   // whether it can install packages
}

const describe = `
import importlib.util, json, os, sys, sysconfig
print(json.dumps({
    "Executable": os.path.realpath(sys.executable),
    "Version": "%d.%d" % sys.version_info[:2],
    "Stdlib": sysconfig.get_path("stdlib"),
    "Pip": importlib.util.find_spec("pip") is not None,
}))`

// findPython looks where MODELPLANE_PYTHON says, on the path and among the versions of pyenv.
func findPython(ctx context.Context, wanted []string) (python, error) {
	var candidates []string
	home, _ := os.UserHomeDir() // without one, nothing is below it
	pyenv := cmp.Or(os.Getenv("PYENV_ROOT"), filepath.Join(home, ".pyenv"))
	for _, version := range wanted {
		candidates = append(candidates, "python"+version)
		found, err := filepath.Glob(filepath.Join(pyenv, "versions", version+".*", "bin", "python3"))
		if err != nil {
			return python{}, err
		}
		candidates = append(candidates, found...)
	}
	candidates = append(candidates, "python3")
	if own := os.Getenv("MODELPLANE_PYTHON"); own != "" {
		candidates = []string{own}
	}
	for _, candidate := range candidates {
		out, err := exec.CommandContext(ctx, candidate, "-c", describe).Output()
		if err != nil {
			continue // it is not there, or only the shim of a version manager is
		}
		var py python
		if err := json.Unmarshal(out, &py); err != nil {
			return python{}, fmt.Errorf("%s: %w", candidate, err)
		}
		if py.Pip && slices.Contains(wanted, py.Version) {
			return py, nil
		}
	}
	return python{}, fmt.Errorf("%w: none of %s is a Python %s with pip; install one, or name it in MODELPLANE_PYTHON",
		errUnavailable, strings.Join(candidates, ", "), strings.Join(wanted, " or "))
}

// inImage is where the interpreter is in the image; it finds its library from there.
func (p python) inImage() string { return "usr/local/bin/python" + p.Version }

func (p python) library() string { return "usr/local/lib/python" + p.Version }

// copyTo leaves out what a server never needs, and packages that somebody installed on this machine.
func (p python) copyTo(tree string) error {
	superfluous := func(name string, d fs.DirEntry) bool {
		switch name {
		case "site-packages", "dist-packages", "test", "idlelib", "turtledemo", "ensurepip", "__pycache__":
			return d.IsDir()
		}
		return strings.HasPrefix(name, "config-"+p.Version)
	}
	if err := copyTree(p.Stdlib, filepath.Join(tree, p.library()), superfluous); err != nil {
		return err
	}
	if err := copyFile(p.Executable, filepath.Join(tree, p.inImage())); err != nil {
		return err
	}
	return copyFile(p.Executable, filepath.Join(tree, "usr/local/bin/python3"))
}

// patience is for one try of anything. MLflow with all it needs takes two minutes, and apt-get may wait five for its lock.
const patience = 10 * time.Minute

// fetch installs the packages of a lock into a directory, and nothing that it does not name. Pip's own tries would be made
// in silence, and each would wait for minutes.
func (p python) fetch(ctx context.Context, packages lock, into string) error {
	named := into + ".txt"
	if err := os.MkdirAll(filepath.Dir(named), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(named, []byte(packages), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(named) }()
	first, _, _ := strings.Cut(firstLine(strings.TrimPrefix(string(packages), "# ")), ". ")
	tell("fetching %s (up to two minutes)", first)
	err := download.Try(ctx, os.Stderr, func(ctx context.Context) error {
		if err := os.RemoveAll(into); err != nil { // of an earlier try
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, p.Executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--root-user-action", "ignore",
			"--retries", "1", "--timeout", "60", "--only-binary", ":all:", "--no-deps", "--require-hashes", "--no-compile", "--target", into, "--requirement", named)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("pip cannot install %s: %w", first, errors.Join(err, ctx.Err()))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return nil
}

func (p python) install(ctx context.Context, packages lock, tree string) error {
	site := filepath.Join(tree, p.library(), "site-packages")
	if err := p.fetch(ctx, packages, site); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(site, "bin")); err != nil { // their first lines name this machine's Python
		return err
	}
	script := "#!/" + p.inImage() + "\nimport sys\n\nfrom mlflow.cli import cli\n\nsys.exit(cli())\n"
	for _, path := range []string{"usr/local/bin/mlflow", program} {
		if err := os.WriteFile(filepath.Join(tree, path), []byte(script), 0o755); err != nil {
			return err
		}
	}
	return removeBallast(site)
}

// compile does not tie the result to the times of the sources, which an image does not keep.
func (p python) compile(ctx context.Context, tree string) error {
	library := filepath.Join(tree, p.library())
	cmd := exec.CommandContext(ctx, p.Executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash",
		"-s", tree, "-p", "/", "-x", `bad_coding|badsyntax|lib2to3/tests`, library)
	out, err := cmd.CombinedOutput()
	if err != nil { // some packages ship sources of other versions of Python
		tell("some files cannot be compiled: %s", firstLine(string(out)))
	}
	return nil
}

// removeBallast takes out what is only of use to those who develop these packages.
func removeBallast(site string) error {
	return filepath.WalkDir(site, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case d.IsDir() && (name == "tests" || name == "include"):
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			return filepath.SkipDir
		case strings.HasSuffix(name, ".pyi"), strings.HasSuffix(name, ".a"), strings.HasSuffix(name, ".pyx"), strings.HasSuffix(name, ".map"):
			return os.Remove(path)
		}
		return nil
	})
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
