// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mlflowPageIsTrue does what docs/mlflow.md says.
func (c cluster) mlflowPageIsTrue() {
	image, port := c.mlflowImage(), c.freePort()
	python, err := os.ReadFile(filepath.Join(root, c.images, "mlflow-python"))
	if err != nil {
		c.Fatal(err)
	}
	c.follow("docs/mlflow.md", strings.TrimSpace(string(python)), "registry.example/mlflow:3.14.0", image,
		"service/mlflow 8443", "service/mlflow "+port+":8443", "localhost:8443", "localhost:"+port)
}

// registryPageIsTrue does what docs/model-registry.md says.
func (c cluster) registryPageIsTrue() {
	port := c.freePort()
	c.follow("docs/model-registry.md", c.registryPython(), "service/small-registry 8080", "service/small-registry "+port+":8080",
		"localhost:8080", "localhost:"+port, `"http://localhost", 8080`, `"http://localhost", `+port)
}

// follow does what a page says under "Try it", line by line, in the shell of a person who has never done it. Some words are
// replaced: images and ports that this machine has.
func (c cluster) follow(path, python string, replace ...string) {
	c.Helper()
	c.do(c.readPage(path, "## Try it"), python, replace...)
}

func (c cluster) readPage(path, heading string) page {
	c.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		c.Fatal(err)
	}
	return readPage(section(string(text), heading))
}

func (c cluster) do(p page, python string, replace ...string) {
	c.Helper()
	words := strings.NewReplacer(replace...)
	dir := c.TempDir()
	examples, err := filepath.Abs(filepath.Join(root, "examples"))
	if err != nil {
		c.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(dir, "examples")); err != nil {
		c.Fatal(err)
	}
	for name, text := range p.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(words.Replace(text)), 0o600); err != nil {
			c.Fatal(err)
		}
	}
	programs := map[string]string{
		"kubectl": fmt.Sprintf("exec %s kubectl --kubeconfig %s/kubeconfig \"$@\"", c.local, c.dir),
		"python3": fmt.Sprintf("exec %s \"$@\"", python),
	}
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			c.Fatal(err)
		}
	}
	script := fmt.Sprintf("set -eux\ncd %[1]s\nPATH=%[1]s:$PATH\ntrap 'kill $(jobs -p) || true' EXIT\n", dir)
	out := c.must("bash", "-c", script+words.Replace(strings.Join(p.commands, "\n")))
	for _, line := range p.answers {
		if !regexp.MustCompile(`(?m)^` + blanks.ReplaceAllString(regexp.QuoteMeta(line), `\s+`) + `(\s+\S+)?\s*$`).MatchString(out) {
			c.Errorf("the page says that %q is answered; what is answered:\n%s", line, out)
		}
	}
}

var blanks = regexp.MustCompile(` +`)

// page is what a reader types, what is answered, and the files that the page shows with their names in a comment.
type page struct {
	commands, answers []string
	files             map[string]string
}

func section(text, heading string) string {
	_, text, _ = strings.Cut(text, "\n"+heading+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

var block = regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")

func readPage(text string) page {
	p := page{files: map[string]string{}}
	for _, found := range block.FindAllStringSubmatch(text, -1) {
		if found[1] != "console" {
			first, _, _ := strings.Cut(found[2], "\n")
			p.files[strings.TrimPrefix(first, "# ")] = found[2]
			continue
		}
		for _, line := range strings.Split(strings.TrimSpace(found[2]), "\n") {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				p.commands = append(p.commands, command)
			} else {
				p.answers = append(p.answers, line)
			}
		}
	}
	return p
}

// freePort is one that nobody listens on at the moment.
func (c cluster) freePort() string {
	c.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
}
