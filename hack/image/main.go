// SPDX-License-Identifier: Apache-2.0

// Command image builds the container image and writes it as an OCI archive, without any container engine. The same
// sources, toolchain and flags give the same bytes: nothing in the image depends on when or where it was built.
//
//	go run ./hack/image                                      for this machine's architecture
//	go run ./hack/image --platforms linux/amd64,linux/arm64  for several
//	go run ./hack/image --by-content --package ./some/server another program, named by its content, for the local cluster
//	go run ./hack/image --module runtimes/x --package ./y    a program of another module
//	go run ./hack/image --by-content --tree dir --name x     files that are there already, started as /x
//
// It knows how an image is laid out and nothing of what the binary does.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

func main() {
	if err := command(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// options is everything that the bytes of the image follow from, besides the sources and the toolchain.
type options struct {
	pkg       string // what to compile
	module    string // directory of the module that the package is of
	tree      string // files that are there already, instead
	name      string
	version   string
	byContent bool
	commit    string
	date      time.Time // of the commit; zero when it is unknown
	platforms []platform
	roots     string // file with the certificate authorities to trust; empty: none
	out       string
	keepAs    string // where the program is wanted by itself as well; empty: nowhere
}

func command(args []string, stdout io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	recipe, err := recipe(o)
	if err != nil {
		return err
	}
	if tag, found := o.madeBefore(recipe); found {
		o.version = tag
		fmt.Fprintln(stdout, o.reference())
		return nil
	}
	made, err := write(&o)
	if err == nil {
		err = o.remember(recipe)
	}
	if err != nil {
		return err
	}
	if o.byContent {
		fmt.Fprintln(stdout, o.reference())
		return nil
	}
	for _, m := range made.images {
		fmt.Fprintf(stdout, "%s  %s  %s compressed\n", m.platform, m.digest, megabytes(m.size))
	}
	fmt.Fprintf(stdout, "%s  %s  %s  %s\n", made.path, o.reference(), made.digest, megabytes(made.size))
	return nil
}

func parse(args []string) (options, error) {
	var o options
	var platforms string
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.pkg, "package", binaryPackage, "the program to compile")
	flags.StringVar(&o.module, "module", ".", "directory of the module that --package is of")
	flags.StringVar(&o.tree, "tree", "", "directory with the image's files, instead of --package; the program is the one named like the image")
	flags.BoolVar(&o.byContent, "by-content", false, "let the tag follow from the content alone, pack quickly, and print nothing but the reference")
	flags.StringVar(&o.name, "name", "", "name of the image, with a registry when it will live in one (default: the program's)")
	flags.StringVar(&o.version, "version", "", "version and tag (default: v and the chart's appVersion)")
	flags.StringVar(&o.commit, "commit", "", "commit it is built from (default: asked of git)")
	flags.StringVar(&platforms, "platforms", "linux/"+runtime.GOARCH, "platforms to build for, separated by commas")
	flags.StringVar(&o.roots, "ca-certificates", "/etc/ssl/certs/ca-certificates.crt", "authorities that the image trusts; left out when the file does not exist")
	flags.StringVar(&o.out, "out", "dist", "directory to write to")
	flags.StringVar(&o.keepAs, "program", "", "file to write the compiled program to as well, for use on this machine")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is not expected", flags.Arg(0))
	}
	if o.name == "" && o.tree == "" {
		o.name = o.program()
	}
	var err error
	if o.platforms, err = parsePlatforms(platforms); err != nil {
		return o, err
	}
	if o.version == "" {
		if o.version, err = chartVersion("charts/modelplane/Chart.yaml"); err != nil {
			return o, err
		}
	}
	if o.byContent {
		// What changes with every commit would make the same sources into another image.
		o.commit = "unknown"
	}
	if o.commit == "" {
		o.commit = gitCommit()
	}
	if err := o.validate(); err != nil {
		return o, err
	}
	o.date, err = sourceDate(os.Getenv("SOURCE_DATE_EPOCH"), o.commit)
	return o, err
}

// validate refuses what the linker's command line or a registry would misunderstand.
func (o options) validate() error {
	if o.keepAs != "" && (o.tree != "" || len(o.platforms) > 1) {
		return errors.New("--program takes what is compiled for one platform")
	}
	if !referencePattern.MatchString(o.reference()) {
		return fmt.Errorf("%q is not the name of an image; see --name and --version", o.reference())
	}
	if !commitPattern.MatchString(o.commit) {
		return fmt.Errorf("--commit %q is not a commit", o.commit)
	}
	return nil
}

var (
	referencePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._:/-]*:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	commitPattern    = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
)

// program is the name of the executable in the image.
func (o options) program() string {
	if o.tree != "" {
		return filepath.Base(o.name)
	}
	return filepath.Base(o.pkg)
}

// reference is what a pod would ask for. A tag has no room for the plus sign of a version.
func (o options) reference() string { return o.name + ":" + o.tag() }

func (o options) tag() string { return strings.ReplaceAll(o.version, "+", "_") }

func (o options) archive() string {
	if o.byContent { // one file, so that what was built before does not pile up
		return filepath.Join(o.out, filepath.Base(o.name)+".oci.tar")
	}
	return filepath.Join(o.out, fmt.Sprintf("%s-%s.oci.tar", filepath.Base(o.name), o.tag()))
}

// platform is an operating system and an architecture, as Go names them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

var known = []platform{{"linux", "amd64"}, {"linux", "arm64"}}

func parsePlatforms(list string) ([]platform, error) {
	var out []platform
	seen := map[platform]bool{}
	for _, word := range strings.Split(list, ",") {
		system, arch, _ := strings.Cut(strings.TrimSpace(word), "/")
		p := platform{system, arch}
		if !supported(p) {
			return nil, fmt.Errorf("--platforms: %q is not supported; choose from linux/amd64 and linux/arm64", word)
		}
		if !seen[p] {
			out = append(out, p)
		}
		seen[p] = true
	}
	return out, nil
}

func supported(p platform) bool {
	for _, k := range known {
		if k == p {
			return true
		}
	}
	return false
}

// chartVersion makes the chart the one place where the version is written down.
func chartVersion(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(raw, &chart); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if chart.AppVersion == "" {
		return "", errors.New(path + " has no appVersion")
	}
	return "v" + chart.AppVersion, nil
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
