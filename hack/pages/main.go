// SPDX-License-Identifier: Apache-2.0

// Command pages writes what documentation can take from the programs themselves: the reference of the commands, and the
// table of what is done for each kind. Its tests hold all pages, also those that people write, to what there is: links,
// commands, flags, targets, values, files, reasons.
//
// It must not know better than the code: what cannot be read from it is not for a generator to say.
//
//	go run ./hack/pages         write the pages
//	go run ./hack/pages -check  fail when a page would change
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/modelplane/modelplane/cmd/modelplane/commands"
	"github.com/modelplane/modelplane/hack/internal/output"
)

func main() {
	check := flag.Bool("check", false, "write nothing, fail when a page would change")
	flag.Parse()
	if err := run("docs", *check, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func run(dir string, check bool, report io.Writer) error {
	kinds, err := kindsPage()
	if err != nil {
		return err
	}
	files := map[string][]byte{"cli.md": commandPage(commands.New()), "kinds.md": kinds}
	return output.Set{Dir: dir, Files: files, Command: "go run ./hack/pages"}.Put(check, report)
}
