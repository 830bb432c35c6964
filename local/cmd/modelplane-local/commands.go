// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/local/internal/cluster"
	"github.com/modelplane/modelplane/local/internal/components"
)

// errUnhealthy makes status fail without saying again what its table already shows.
var errUnhealthy = errors.New("a component is not healthy")

func newRoot() *cobra.Command {
	c := &cluster.Cluster{Out: os.Stdout}
	root := &cobra.Command{
		Use:   "modelplane-local",
		Short: "A whole Kubernetes on this machine",
		Long: "A whole Kubernetes on this machine: control plane and one node, from this program and Debian's containerd.\n\n" +
			"Called as " + strings.Join(components.Names(), ", ") + "\n(first argument or symlink) it is that program.",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return locate(c)
		},
	}
	root.PersistentFlags().StringVar(&c.Dir, "dir", "", "state directory (default $XDG_STATE_HOME/modelplane or ~/.local/state/modelplane)")
	root.AddCommand(newUp(c), newDown(c), newStatus(c), newLoadImage(c), newKubeconfig(c), newLogs(c), newAssets(c))
	return root
}

// locate fills in where the cluster lives and which executable becomes its components.
func locate(c *cluster.Cluster) (err error) {
	if c.Dir == "" {
		if c.Dir, err = cluster.DefaultDir(); err != nil {
			return err
		}
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return err
	}
	if c.Executable, err = os.Executable(); err != nil {
		return err
	}
	c.Executable, err = filepath.EvalSymlinks(c.Executable)
	return err
}

func newUp(c *cluster.Cluster) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, or repair the one that runs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Up(cmd.Context()); err != nil {
				return err
			}
			if !quiet {
				usage(c)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.DurationVar(&c.Timeout, "timeout", 2*time.Minute, "how long each component may take to become ready")
	f.BoolVar(&quiet, "quiet", false, "do not tell how to go on")
	f.BoolVar(&c.ControlPlaneOnly, "control-plane-only", false, "start no node: pods do not run, and root is not needed")
	f.BoolVar(&c.Install, "install", os.Geteuid() == 0, "install the Debian packages that a node needs")
	return cmd
}

func newDown(c *cluster.Cluster) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End the cluster and remove its state directory",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.Down(cmd.Context(), keep) },
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the data, so that a later up resumes it")
	return cmd
}

func newLoadImage(c *cluster.Cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "load-image FILE...",
		Short: "Make the images in tar files (as docker save writes them, or OCI layouts) available to pods",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, file := range args {
				if err := c.LoadImage(cmd.Context(), file); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newStatus(c *cluster.Cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show each component with its process, memory and health; fails when one is not healthy",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			healthy, err := c.PrintStatus(all)
			if err == nil && !healthy {
				err = errUnhealthy
			}
			return err
		},
	}
}

func newKubeconfig(c *cluster.Cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the kubeconfig, for export KUBECONFIG=$(modelplane-local kubeconfig)",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := os.Stat(c.Kubeconfig()); err != nil {
				return fmt.Errorf("%w in %s; start one with `modelplane-local up`", cluster.ErrAbsent, c.Dir)
			}
			_, err := fmt.Fprintln(c.Out, c.Kubeconfig())
			return err
		},
	}
}

func newLogs(c *cluster.Cluster) *cobra.Command {
	var follow bool
	var lines int
	cmd := &cobra.Command{
		Use:   "logs [component]",
		Short: "Show the end of one component's log, or of all",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if follow && len(args) == 0 {
				return errors.New("--follow needs a component to follow")
			}
			return c.Logs(cmd.Context(), strings.Join(args, ""), lines, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as the log grows")
	cmd.Flags().IntVarP(&lines, "lines", "n", 50, "how many lines from the end")
	return cmd
}

func newAssets(c *cluster.Cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "assets DIR",
		Short: "Link every component's name in DIR to this executable, for use as KUBEBUILDER_ASSETS",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return cluster.Link(c.Executable, args[0], components.Names())
		},
	}
}

// usage says what a person can do next.
func usage(c *cluster.Cluster) {
	fmt.Fprintf(c.Out, "\nTo use it:\n\n  export KUBECONFIG=%s\n", c.Kubeconfig())
	if _, err := exec.LookPath("kubectl"); err != nil {
		fmt.Fprintf(c.Out, "  export PATH=$PATH:%s\n", c.BinDir())
	}
	fmt.Fprintf(c.Out, "  kubectl get namespaces\n\n`modelplane-local down` ends it.\n")
}
