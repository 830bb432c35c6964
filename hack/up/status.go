// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/modelplane/modelplane/internal/chart"
)

// program is the one that people type. The image of the manager has the same one, so that both tell the same version.
const program = "bin/modelplane"

// show ends with what a person wants to see, and what to type to see more.
func (u *up) show(ctx context.Context, kubeconfig string) error {
	u.heading("the cluster")
	if err := u.status(ctx, kubeconfig); err != nil {
		return err
	}
	bin := filepath.Join(filepath.Dir(kubeconfig), "bin")
	if err := linkProgram(bin); err != nil {
		return err
	}
	fmt.Fprintf(u.out, `
  export KUBECONFIG=%s
  export PATH=%s:$PATH    # kubectl and modelplane
  kubectl get pods --all-namespaces
  modelplane explain inferenceservice/iris

`, kubeconfig, bin)
	return nil
}

// linkProgram puts the program beside kubectl, which also finds it as its plugin.
func linkProgram(bin string) error {
	target, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	for _, name := range []string{"modelplane", "kubectl-modelplane"} {
		link := filepath.Join(bin, name)
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	return nil
}

// status shows the processes of the machine and the manager, and fails when one of them is not well.
func (u *up) status(ctx context.Context, kubeconfig string) error {
	if err := u.pass(ctx, u.local, append([]string{"status"}, u.dirFlag()...)...); err != nil {
		return err
	}
	fmt.Fprintln(u.out)
	ask := func(ctx context.Context, stdin string, args ...string) (string, error) {
		return u.kubectl(ctx, kubeconfig, stdin, args...)
	}
	return errors.Join(u.managerStatus(ctx, ask), u.gatewayStatus(ctx, ask))
}

// gatewayStatus says nothing where there is no gateway.
func (u *up) gatewayStatus(ctx context.Context, ask kubectl) error {
	const line = `jsonpath={range .items[*]}{.metadata.name}{"\t"}{.status.readyReplicas}{"\t"}{.spec.template.spec.containers[0].image}{"\n"}{end}`
	parts, err := ask(ctx, "", "get", "deployments", "--namespace", gatewayNamespace, "-o", line)
	if err != nil || parts == "" {
		return err
	}
	table := tabwriter.NewWriter(u.out, 0, 4, 3, ' ', 0)
	fmt.Fprintln(table, "\nGATEWAY\tREADY\tIMAGE")
	down := ""
	for part := range strings.Lines(parts) {
		name, rest, _ := strings.Cut(strings.TrimSpace(part), "\t")
		replicas, image, _ := strings.Cut(rest, "\t")
		ready := replicas != "" && replicas != "0"
		if !ready {
			down = name
		}
		fmt.Fprintf(table, "%s\t%t\t%s\n", name, ready, image)
	}
	if err := table.Flush(); err != nil || down == "" {
		return err
	}
	return fmt.Errorf("the gateway is not ready; see `kubectl logs deployment/%s --namespace %s`", down, gatewayNamespace)
}

// managerStatus asks each pod of the manager for its version, because what was installed need not be what runs.
func (u *up) managerStatus(ctx context.Context, ask kubectl) error {
	const line = `jsonpath={range .items[*]}{.metadata.name}{"\t"}{.status.conditions[?(@.type=="Ready")].status}{"\t"}` +
		`{.status.containerStatuses[0].restartCount}{"\t"}{.spec.containers[0].image}{"\n"}{end}`
	pods, err := ask(ctx, "", "get", "pods", "--namespace", chart.DefaultNamespace, "-l", "app.kubernetes.io/instance="+chart.DefaultRelease+
		",app.kubernetes.io/name=modelplane", "-o", line)
	if err != nil {
		return err
	}
	if pods == "" {
		return errors.New("no manager runs; make up starts one")
	}
	table := tabwriter.NewWriter(u.out, 0, 4, 3, ' ', 0)
	fmt.Fprintln(table, "MANAGER\tREADY\tRESTARTS\tIMAGE\tVERSION")
	ready := false
	for pod := range strings.Lines(pods) {
		pod = strings.TrimSpace(pod)
		name, rest, _ := strings.Cut(pod, "\t")
		version, err := ask(ctx, "", "exec", "--namespace", chart.DefaultNamespace, name, "--", "/modelplane", "version")
		if err != nil {
			version = "does not answer"
		}
		fmt.Fprintf(table, "%s\t%s\n", pod, shortVersion(version))
		ready = ready || strings.HasPrefix(rest, "True\t")
	}
	if err := table.Flush(); err != nil || ready {
		return err
	}
	return errors.New("the manager is not ready; see `kubectl logs deployment/" + chart.DefaultRelease + " --namespace " + chart.DefaultNamespace + "`")
}

// shortVersion leaves out what the program says of the toolchain.
func shortVersion(said string) string {
	version, _, _ := strings.Cut(strings.TrimPrefix(said, "modelplane "), " (")
	return version
}
