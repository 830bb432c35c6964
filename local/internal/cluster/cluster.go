// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a Kubernetes control plane, and makes the machine its node, with ordinary processes of
// one Linux machine and everything they need under one state directory. It starts, repairs, reports on and
// ends those processes, and hands images to the node. It must not end a process that it cannot prove to be its
// own, remove a file that it did not make, know what runs in the cluster's pods, or contain a Kubernetes
// component (those are in package components, and only reached by starting this same executable under another
// name).
//
// Nothing is kept in memory between calls: every command reads the directory, compares it with what
// runs, and acts on the difference. An interrupted command is therefore finished by running it again.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Cluster is one cluster, named by its state directory.
type Cluster struct {
	// Dir is the state directory; see DefaultDir.
	Dir string
	// Executable is the multi-call binary that is started under each component's name.
	Executable string
	// Out receives one line per step, for a person.
	Out io.Writer
	// Timeout bounds the wait for each component to become ready.
	Timeout time.Duration
	// ControlPlaneOnly leaves this machine out of the cluster: no pod runs, and root is not needed.
	ControlPlaneOnly bool
	// Install lets Up install Debian packages that a node needs.
	Install bool
}

// DefaultDir is where a cluster lives when nobody says otherwise.
func DefaultDir() (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no place for the cluster's state; pass --dir, or set HOME or XDG_STATE_HOME: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "modelplane"), nil
}

// Kubeconfig is the file with which a person reaches the cluster as its administrator.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

// ErrAbsent says that the state directory holds no cluster.
var ErrAbsent = errors.New("there is no cluster")

func (c *Cluster) absent() error {
	return fmt.Errorf("%w in %s; start one with `modelplane-local up`", ErrAbsent, c.Dir)
}

// Up makes the cluster run. Components that run as they should are left alone, others are
// started or replaced, so that the same call creates, resumes and repairs.
func (c *Cluster) Up(ctx context.Context) error {
	if !c.ControlPlaneOnly {
		if err := c.ensureTools(ctx); err != nil {
			return err
		}
	}
	if err := claim(c.Dir); err != nil {
		return err
	}
	held, err := acquire(ctx, c.Dir)
	if err != nil {
		return err
	}
	defer held.release()
	if err := claim(c.Dir); err != nil {
		return err
	}
	start := time.Now()
	run, err := c.prepare(ctx, held)
	if err != nil {
		return err
	}
	if err := run.everything(ctx, c.specs(run.pki, run.state)); err != nil {
		return err
	}
	if run.started == 0 {
		run.say("cluster", "already running in %s; nothing to do", c.Dir)
		return nil
	}
	run.say("cluster", "ready in %s", elapsed(start))
	return nil
}

// everything makes each process run, in the order in which they need each other.
func (b *bringUp) everything(ctx context.Context, specs map[string]spec) error {
	if err := b.endOutdated(ctx, specs); err != nil {
		return err
	}
	if addons, wanted := specs[nameAddons]; wanted && !b.runs(nameAddons) {
		w, err := b.start(addons) // the API server asks it from its own start on
		if err != nil {
			return err
		}
		b.early = map[string]waiting{nameAddons: w}
	}
	for _, stage := range controlPlaneStages {
		stage = slices.DeleteFunc(slices.Clone(stage), func(name string) bool { return specs[name].name == "" })
		if err := b.stage(ctx, specs, stage); err != nil {
			return err
		}
	}
	if err := b.waitForServiceAccounts(ctx); err != nil {
		return err
	}
	if b.state.Node != nil {
		return b.node(ctx, specs)
	}
	return nil
}

// prepare brings the files of the directory in order: keys and certificates, ports, kubeconfigs.
func (c *Cluster) prepare(ctx context.Context, held *lock) (*bringUp, error) {
	p, err := ensurePKI(c.pkiDir(), time.Now())
	if err != nil {
		return nil, err
	}
	st, err := loadState(c.Dir)
	if err != nil {
		return nil, err
	}
	if c.ControlPlaneOnly && st.Node != nil {
		return nil, fmt.Errorf("the cluster in %s has a node, which cannot be taken away; end it with `modelplane-local down` first", c.Dir)
	}
	if err := st.choosePorts(c.Dir); err != nil {
		return nil, err
	}
	run := &bringUp{Cluster: c, pki: p, state: st, held: held}
	if !c.ControlPlaneOnly {
		if err := run.prepareNode(ctx); err != nil {
			return nil, err
		}
	}
	if err := st.save(c.Dir); err != nil {
		return nil, err
	}
	if err := c.writeKubeconfigs(p, st); err != nil {
		return nil, err
	}
	if err := Link(c.Executable, c.BinDir(), []string{"kubectl", "modelplane-local"}); err != nil {
		return nil, err
	}
	return run, nil
}

// elapsed is rounded the way a person would say it.
func elapsed(since time.Time) string { return fmt.Sprintf("%.1f s", time.Since(since).Seconds()) }

// BinDir holds kubectl, for people who have none, and the program that ends this cluster.
func (c *Cluster) BinDir() string { return filepath.Join(c.Dir, "bin") }

func (c *Cluster) pkiDir() string { return filepath.Join(c.Dir, "pki") }
