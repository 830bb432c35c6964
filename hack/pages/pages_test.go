// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/modelplane/modelplane/cmd/modelplane/commands"
	"github.com/modelplane/modelplane/internal/fetch/initializer"
	"github.com/modelplane/modelplane/internal/modelmesh/mesh"
	"github.com/modelplane/modelplane/internal/modelmesh/puller"
	"github.com/modelplane/modelplane/internal/modelmesh/rest"
	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/serving/agent"
	"github.com/modelplane/modelplane/internal/serving/qpext"
	"github.com/modelplane/modelplane/internal/serving/router"
)

func TestUpToDate(t *testing.T) {
	if err := run("docs", true, io.Discard); err != nil {
		t.Error(err)
	}
}

// TestLinks follows every link inside the repository, and holds that every page of docs can be come to.
func TestLinks(t *testing.T) {
	all := pages(t)
	linked := map[string]bool{}
	for _, p := range all {
		for _, l := range p.links {
			target, fragment, _ := strings.Cut(l.text, "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := p.path
			if target != "" {
				path = filepath.Join(filepath.Dir(p.path), target)
			}
			linked[path] = linked[path] || path != p.path
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s:%d links to %s, which is not there", p.path, l.line, l.text)
			}
			if fragment == "" {
				continue
			}
			if i := slices.IndexFunc(all, func(o *page) bool { return o.path == path }); i < 0 || !slices.Contains(all[i].anchors, fragment) {
				t.Errorf("%s:%d links to %s, and there is no such heading", p.path, l.line, l.text)
			}
		}
	}
	for _, p := range all {
		if strings.HasPrefix(p.path, "docs/") && !linked[p.path] {
			t.Errorf("no page links to %s", p.path)
		}
	}
}

// programs are those that pages tell people to type.
func programs() map[string]*cobra.Command {
	pod := &cobra.Command{Use: "modelplane-pod"}
	pod.AddCommand(initializer.New(), mesh.NewCommand(), mesh.NewStopCommand(), puller.NewCommand(), rest.NewCommand(),
		agent.NewCommand(), router.NewCommand(), qpext.NewCommand(), command.NewVersion())
	return map[string]*cobra.Command{"modelplane": commands.New(), "modelplane-pod": pod}
}

var betweenCommands = regexp.MustCompile(`\s*(?:\||&&|;)\s*`)

// called finds the commands in lines to type and in code within sentences, as words.
func (p *page) called() map[place][]string {
	out := map[place][]string{}
	for _, l := range append(slices.Clone(p.typed), p.spans...) {
		text, _, _ := strings.Cut(strings.TrimPrefix(l.text, "$ "), " #")
		for _, one := range betweenCommands.Split(text, -1) {
			if words := strings.Fields(one); len(words) > 0 {
				out[place{l.line, one}] = words
			}
		}
	}
	return out
}

// TestCommands looks for every command of ours with its flags.
func TestCommands(t *testing.T) {
	found, known := 0, programs()
	for _, p := range pages(t) {
		for at, words := range p.called() {
			if words[0] == "kubectl" && len(words) > 1 && words[1] == "modelplane" {
				words = words[1:]
			}
			root := known[strings.TrimPrefix(strings.TrimPrefix(words[0], "bin/"), "/")]
			if root == nil || len(words) == 1 {
				continue
			}
			found++
			if problem := wrong(root, words[1:]); problem != "" {
				t.Errorf("%s:%d: %s: %s", p.path, at.line, at.text, problem)
			}
		}
	}
	if found < 10 {
		t.Errorf("found only %d commands", found)
	}
	for _, line := range []string{"plan --fillename x", "plam", "explain -x", "plan -f x explain"} {
		if wrong(commands.New(), strings.Fields(line)) == "" {
			t.Errorf("%s is thought to be right", line)
		}
	}
}

// wrong says what is wrong with the words behind a program's name.
func wrong(root *cobra.Command, words []string) string {
	root.InitDefaultVersionFlag()
	c, rest, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	if c == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return "there is no such command"
	}
	for _, word := range rest {
		name, _, _ := strings.Cut(word, "=")
		switch {
		case name == "-":
		case strings.HasPrefix(name, "--") && c.Flags().Lookup(name[2:]) == nil && (c != root || name != "--version"),
			len(name) == 2 && name[0] == '-' && c.Flags().ShorthandLookup(name[1:]) == nil:
			return "there is no flag " + name
		case slices.ContainsFunc(root.Commands(), func(other *cobra.Command) bool { return other.Name() == word }):
			return "one command at a time"
		}
	}
	return ""
}

// foreignFlags are those of other programs that sentences name.
var foreignFlags = []string{"--model_name", "--admission-control-config-file", "--take-ownership", "--set", "--for"}

var (
	flagName = regexp.MustCompile(`^--[a-z][a-z0-9_-]+`)
	// declared are flags of programs that are modules of their own.
	declared = regexp.MustCompile(`Var(?:P)?\(&[\w.]+, "([\w-]+)"`)
)

// TestFlags looks for every flag that a sentence names.
func TestFlags(t *testing.T) {
	known := slices.Clone(foreignFlags)
	var note func(c *cobra.Command)
	note = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
		for _, sub := range c.Commands() {
			note(sub)
		}
	}
	for _, root := range programs() {
		note(root)
	}
	for _, file := range []string{"runtimes/onnx/internal/serve/options.go", "local/cmd/modelplane-local/commands.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range declared.FindAllStringSubmatch(string(source), -1) {
			known = append(known, "--"+f[1])
		}
	}
	for _, p := range pages(t) {
		for _, s := range p.spans {
			if name := flagName.FindString(s.text); name != "" && name != "--help" && !slices.Contains(known, name) {
				t.Errorf("%s:%d: no program has the flag %s", p.path, s.line, name)
			}
		}
	}
}

var (
	target   = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	variable = regexp.MustCompile(`(?m)^([A-Z]+) [?:]?=`)
)

// TestTargets looks for every target, and the variables that are set for it.
func TestTargets(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	names := func(re *regexp.Regexp) (out []string) {
		for _, found := range re.FindAllStringSubmatch(string(makefile), -1) {
			out = append(out, found[1])
		}
		return out
	}
	targets, variables, found := names(target), names(variable), 0
	for _, p := range pages(t) {
		for at, words := range p.called() {
			if words[0] != "make" || len(words) > 1 && words[1] == "lists" {
				continue
			}
			for _, word := range words[1:] {
				name, _, sets := strings.Cut(word, "=")
				if sets && !slices.Contains(variables, name) {
					t.Errorf("%s:%d: %s: the Makefile has no variable %s", p.path, at.line, at.text, name)
				}
				if sets || !regexp.MustCompile(`^[a-z][a-z0-9-]*$`).MatchString(word) {
					break // values and remarks may follow
				}
				if found++; !slices.Contains(targets, word) {
					t.Errorf("%s:%d: %s: the Makefile has no target %s", p.path, at.line, at.text, word)
				}
				if strings.Contains(at.text, "  ") {
					break // a list with a remark behind each
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("found only %d targets", found)
	}
}

var repositoryPath = regexp.MustCompile(`(?:^|[\s=@])((?:api|bench|charts|cmd|config|docs|examples|hack|internal|local|runtimes|test)/[\w./-]+)`)

// TestFiles looks for the files and folders of the repository that pages name in code.
func TestFiles(t *testing.T) {
	for _, p := range pages(t) {
		for _, l := range append(slices.Clone(p.typed), p.spans...) {
			for _, found := range repositoryPath.FindAllStringSubmatch(l.text, -1) {
				path := strings.TrimRight(found[1], ".")
				if _, err := os.Stat(path); err != nil && !strings.HasSuffix(path, "/...") {
					t.Errorf("%s:%d names %s, which is not there", p.path, l.line, path)
				}
			}
		}
	}
}
