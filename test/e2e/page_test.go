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

// mlflowPageIsTrue does what docs/mlflow.md says, line by line, in the shell of a person who has never done it.
func (c cluster) mlflowPageIsTrue() {
	image := c.mlflowImage()
	python, err := os.ReadFile(filepath.Join(root, c.images, "mlflow-python"))
	if err != nil {
		c.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/mlflow.md"))
	if err != nil {
		c.Fatal(err)
	}
	p := readPage(section(string(page), "## Try it"))
	dir := c.TempDir()
	examples, err := filepath.Abs(filepath.Join(root, "examples"))
	if err != nil {
		c.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(dir, "examples")); err != nil {
		c.Fatal(err)
	}
	for name, text := range p.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			c.Fatal(err)
		}
	}
	programs := map[string]string{
		"kubectl": fmt.Sprintf("exec %s kubectl --kubeconfig %s/kubeconfig \"$@\"", c.local, c.dir),
		"python3": fmt.Sprintf("exec %s \"$@\"", strings.TrimSpace(string(python))),
	}
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			c.Fatal(err)
		}
	}
	script := fmt.Sprintf("set -eux\ncd %[1]s\nPATH=%[1]s:$PATH\ntrap 'kill $(jobs -p) || true' EXIT\n", dir)
	port := c.freePort()
	script += strings.NewReplacer("registry.example/mlflow:3.14.0", image,
		"service/mlflow 8443", "service/mlflow "+port+":8443", "localhost:8443", "localhost:"+port).Replace(strings.Join(p.commands, "\n"))
	out := c.must("bash", "-c", script)
	for _, line := range p.answers {
		if !regexp.MustCompile(`(?m)^` + blanks.ReplaceAllString(regexp.QuoteMeta(line), `\s+`) + `\s*$`).MatchString(out) {
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
