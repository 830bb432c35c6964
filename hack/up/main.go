// SPDX-License-Identifier: Apache-2.0

// Command up brings Modelplane up as a person would install it, on a cluster that it starts on this machine: it builds
// what is needed, starts Kubernetes with modelplane-local, loads the images into it, installs the chart, waits until
// the manager is ready and has a model served. Running it again changes only what is different.
//
//	go run ./hack/up                 on this machine
//	go run ./hack/up --dir DIR       with the cluster's files in DIR
//	go run ./hack/up --no-gateway    without a gateway in front of models
//	go run ./hack/up --status        only shows what runs
//	KUBECONFIG=… go run ./hack/up    into the cluster that KUBECONFIG names; nothing is started
//
// It puts the pieces together and knows nothing of what is inside of them.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "up:", err)
		os.Exit(1)
	}
}

// up is one run.
type up struct {
	local   string // the program modelplane-local
	dir     string // where it keeps the cluster; empty: at its usual place
	archive string // where images are written to
	image   string // for a cluster that is not ours: where its nodes find the manager's image
	pod     string // and the one of what runs once per pod; empty: beside the manager's
	version string // what the manager says it is; empty: the chart's version
	timeout time.Duration
	out     io.Writer
	// noGateway leaves out the gateway in front of models.
	noGateway bool
	// activator lets services sleep while nobody asks for them.
	activator bool
}

func command(ctx context.Context, args []string, out io.Writer) error {
	u := &up{out: out}
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.StringVar(&u.local, "local", "", "the program modelplane-local (default: built from ./local)")
	flags.StringVar(&u.dir, "dir", "", "where the cluster keeps its files")
	flags.StringVar(&u.archive, "images", "dist/local", "where images are written to")
	flags.StringVar(&u.image, "image", "", "with KUBECONFIG: the image, as the nodes of that cluster find it")
	flags.StringVar(&u.pod, "pod-image", "", "with KUBECONFIG: the image of what runs once per pod (default: the image with -pod behind its name)")
	flags.StringVar(&u.version, "version", "", "version that the manager is built as (default: v and the chart's appVersion)")
	flags.BoolVar(&u.activator, "activator", false, "run the activator, which lets services with minReplicas: 0 sleep while nobody asks for them")
	flags.BoolVar(&u.noGateway, "no-gateway", false, "start no gateway; models answer at the addresses of their Services alone")
	status := false
	flags.BoolVar(&status, "status", false, "show what runs, and fail when a part of it is not well")
	flags.DurationVar(&u.timeout, "timeout", 5*time.Minute, "how long each step may take")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is not expected", flags.Arg(0))
	}
	if status {
		kubeconfig, err := u.ownKubeconfig(ctx)
		if err == nil && kubeconfig == "" {
			err = errors.New("nothing runs; make up starts it")
		}
		if err != nil {
			return err
		}
		return u.status(ctx, kubeconfig)
	}
	start := time.Now()
	if err := u.run(ctx, os.Getenv("KUBECONFIG")); err != nil {
		return err
	}
	u.say("everything", "ready in %s", since(start))
	return nil
}

func (u *up) run(ctx context.Context, kubeconfig string) error {
	own, err := u.ownKubeconfig(ctx)
	if err != nil {
		return err
	}
	if kubeconfig != "" && kubeconfig != own {
		return u.installElsewhere(ctx, kubeconfig)
	}
	if err := u.start(ctx); err != nil {
		return err
	}
	if own, err = u.ownKubeconfig(ctx); err != nil {
		return err
	}
	u.heading("images")
	gateway, err := u.bringGateway(ctx, own) // first, because it starts while others are made
	if err != nil {
		return err
	}
	image, err := u.load(ctx, "modelplane", "--package", "./cmd/modelplane", "--version", u.version, "--program", program)
	if err != nil {
		return err
	}
	pod, err := u.load(ctx, "modelplane-pod", "--package", "./cmd/modelplane-pod", "--version", u.version)
	if err != nil {
		return err
	}
	etcd, err := u.load(ctx, "modelplane-etcd", "--module", "runtimes/etcd", "--package", "./cmd/modelplane-etcd")
	if err != nil {
		return err
	}
	server, err := u.loadServer(ctx)
	if err != nil {
		return err
	}
	if err := u.loadTransformer(ctx); err != nil {
		return err
	}
	if err := u.install(ctx, own, u.withActivator(localValues(image, pod, server, etcd, gateway != nil))); err != nil {
		return err
	}
	if err := u.awaitGateway(ctx, own, gateway); err != nil {
		return err
	}
	if err := u.serveExample(ctx, own); err != nil {
		return err
	}
	if err := u.show(ctx, own); err != nil {
		return err
	}
	return u.askExample(ctx, own, gateway != nil)
}

// start builds modelplane-local when nobody named one, and lets it do its work.
func (u *up) start(ctx context.Context) error {
	u.heading("starting Kubernetes on this machine")
	return u.pass(ctx, u.local, append([]string{"up", "--quiet"}, u.dirFlag()...)...)
}

// ownKubeconfig is empty while there is no cluster of ours.
func (u *up) ownKubeconfig(ctx context.Context) (string, error) {
	if u.local == "" {
		u.heading("Kubernetes for this machine")
		assets, err := output(ctx, "go", "run", "./hack/assets")
		if err != nil {
			return "", err
		}
		u.local = filepath.Join(assets, "modelplane-local")
		u.say("programs", "%s", assets)
	}
	path, err := output(ctx, u.local, append([]string{"kubeconfig"}, u.dirFlag()...)...)
	var failed *exec.ExitError
	if errors.As(err, &failed) && strings.Contains(err.Error(), "there is no cluster") {
		return "", nil
	}
	return path, err
}

func (u *up) dirFlag() []string {
	if u.dir == "" {
		return nil
	}
	return []string{"--dir", u.dir}
}

// load builds an image and hands it to the node. It returns what pods call it.
func (u *up) load(ctx context.Context, name string, from ...string) (string, error) {
	start := time.Now()
	args := append([]string{"run", "./hack/image", "--by-content", "--name", name, "--out", u.archive}, from...)
	reference, err := output(ctx, "go", args...)
	if err != nil {
		return "", err
	}
	u.say("image", "%s built in %s", reference, since(start))
	archive := filepath.Join(u.archive, filepath.Base(name)+".oci.tar")
	return reference, u.pass(ctx, u.local, append([]string{"load-image", archive}, u.dirFlag()...)...)
}

// installElsewhere leaves everything but the chart to whoever runs that cluster.
func (u *up) installElsewhere(ctx context.Context, kubeconfig string) error {
	u.heading("installing into the cluster of KUBECONFIG; none is started here")
	return u.install(ctx, kubeconfig, imageValues(u.image, u.pod))
}

func (u *up) heading(text string) { fmt.Fprintf(u.out, "==> %s\n", text) }

func (u *up) say(who, format string, args ...any) {
	fmt.Fprintf(u.out, "  %-24s %s\n", who, fmt.Sprintf(format, args...))
}

func since(start time.Time) string { return fmt.Sprintf("%.1f s", time.Since(start).Seconds()) }

// pass runs a program whose words are meant for the reader.
func (u *up) pass(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = u.out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(name), args[0], err)
	}
	return nil
}

// output runs a program for its one line on standard output; what it tells people goes on to them, and into the error.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var told bytes.Buffer
	cmd.Stderr = io.MultiWriter(&told, os.Stderr)
	if name != "go" {
		cmd.Stderr = &told
	}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(told.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
