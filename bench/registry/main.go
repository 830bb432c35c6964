// SPDX-License-Identifier: Apache-2.0

// Command registry measures servers of the model registry's API: how fast they answer from a database that is full, how
// many statements that takes, and how much memory. The README beside it says how to read the figures. It must not know
// the inside of any server: it sees what clients, the database and the operating system see.
package main

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit/terminal"
	"github.com/modelplane/modelplane/internal/testkit/upstream"
)

// options are what to measure.
type options struct {
	models, clients int
	each            time.Duration
	kind, url       string
	upstream        bool
	say             func(format string, args ...any)
}

func main() { os.Exit(command()) }

func command() int {
	var o options
	flag.IntVar(&o.models, "n", 100_000, fmt.Sprintf("models, of %d versions each", versions))
	flag.IntVar(&o.clients, "clients", 8, "clients that ask at the same time")
	flag.DurationVar(&o.each, "each", 5*time.Second, "how long each operation is done again and again")
	flag.StringVar(&o.kind, "database", "postgres", "postgres or mysql")
	flag.StringVar(&o.url, "url", "", "address of another server of this API, which is filled with models by that API; empty: ours, with a database of its own")
	flag.BoolVar(&o.upstream, "upstream", false, "measure the known server, too, on the same MySQL database")
	out := flag.String("out", "dist/bench/registry.json", "file for the figures")
	flag.Parse()
	if o.upstream {
		o.kind = "mysql"
	}
	if o.models < 1 || o.clients < 1 || (o.kind != "postgres" && o.kind != "mysql") || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "registry: -n and -clients must be at least 1, -database postgres or mysql, and nothing may follow the flags")
		return 2
	}
	begin := time.Now()
	o.say = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%4.0f s  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	var reports []*report
	if !terminal.Run("registry", func(t testing.TB) { reports = o.measure(t) }) {
		return 1
	}
	show(os.Stdout, reports)
	if err := save(reports, *out); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		return 1
	}
	if o.url != "" {
		return 0 // the promises are ours alone
	}
	broken := reports[0].broken()
	for _, b := range broken {
		fmt.Fprintln(os.Stderr, "not as promised:", b)
	}
	return min(len(broken), 1)
}

func (o *options) measure(t testing.TB) []*report {
	if o.url != "" {
		return []*report{o.measureForeign(t)}
	}
	b := newBed(t, o.kind)
	var theirs, theirsCounted *process
	if o.upstream { // it comes first, so that the tables are its own
		parts := upstream.Find(t)
		direct := parts.Start(t, b.maria, b.maria.Host, b.maria.Port, database)
		host, port := split(t, b.wire.address)
		counted := parts.Start(t, b.maria, host, port, database)
		theirs, theirsCounted = &process{direct.URL, direct.Processes}, &process{counted.URL, counted.Processes}
	}
	o.say("building our server")
	binary := build(t)
	direct, counted := ours(t, binary, o.kind, b.dsn), ours(t, binary, o.kind, b.counted)
	o.say("writing %d models with %d versions each", o.models, versions)
	in := &content{prefix: "bench-"}
	if err := seedByStatements(t.Context(), b.db, o.kind, in, o.models); err != nil {
		t.Fatal(err)
	}
	reports := []*report{o.measureOne(t, "ours", direct, counted, b.wire, in)}
	if theirs != nil {
		reports = append(reports, o.measureOne(t, "upstream "+upstream.Version, theirs, theirsCounted, b.wire, in))
	}
	return reports
}

// measureForeign measures a server of which nothing is known but its address.
func (o *options) measureForeign(t testing.TB) *report {
	in := &content{prefix: fmt.Sprintf("bench-%d-", time.Now().UnixMilli())}
	o.say("making %d models with %d versions each", o.models, versions)
	if err := seedByAPI(t.Context(), newClient(o.url, 1), in, o.models); err != nil {
		t.Fatal(err)
	}
	return o.measureOne(t, o.url, &process{url: o.url}, nil, nil, in)
}

// measureOne measures times at one process of a server, and statements at another, whose way to the database counts.
func (o *options) measureOne(t testing.TB, name string, direct, counted *process, w *wire, in *content) *report {
	r := &report{Server: name, Models: len(in.ids), Figures: map[string]figures{}}
	var err error
	if r.StartMiB, err = direct.peakMiB(); err != nil {
		t.Fatal(err)
	}
	filters, err := knowsFilters(t.Context(), direct.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range operations {
		if op.filters && !filters {
			continue
		}
		o.say("%s: %s", name, op.name)
		f, err := op.run(t.Context(), direct.url, in, o.clients, o.each)
		if err == nil && counted != nil {
			f.Statements, err = op.count(t.Context(), counted.url, in, w)
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Figures[op.name] = f
	}
	if r.PeakMiB, err = direct.peakMiB(); err != nil {
		t.Fatal(err)
	}
	return r
}
