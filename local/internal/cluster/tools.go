// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// toolPath is where Debian keeps the node's programs. Some of these directories are not in everybody's PATH.
const toolPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// cniPlugins is where Debian's package puts them.
const cniPlugins = "/usr/lib/cni"

// requirement is a program that a node needs and the Debian package that it is in.
type requirement struct{ program, pkg string }

var requirements = []requirement{
	{"containerd", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{cniPlugins + "/ptp", "containernetworking-plugins"},
	{cniPlugins + "/host-local", "containernetworking-plugins"},
	{"nft", "nftables"},
	{"ip", "iproute2"},
}

// findTools tells where each program is; what is not installed is left out.
func findTools() map[string]string {
	found := map[string]string{}
	for _, r := range requirements {
		candidates := []string{r.program}
		if !filepath.IsAbs(r.program) {
			candidates = nil
			for _, dir := range filepath.SplitList(toolPath) {
				candidates = append(candidates, filepath.Join(dir, r.program))
			}
		}
		for _, path := range candidates {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				found[r.program] = path
				break
			}
		}
	}
	return found
}

// missingPackages names the packages of the programs that are not there.
func missingPackages(found map[string]string) []string {
	var missing []string
	for _, r := range requirements {
		if found[r.program] == "" && !slices.Contains(missing, r.pkg) {
			missing = append(missing, r.pkg)
		}
	}
	return missing
}

// ErrNoNode says that this machine cannot be a node as things are.
var ErrNoNode = errors.New("this machine cannot be a node yet")

const withoutNode = "or start the control plane alone, where no pod runs: modelplane-local up --control-plane-only"

// ensureTools installs what is missing when it may, and otherwise says what to type.
func (c *Cluster) ensureTools(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: that takes root, for containers and their network; run this again as root,\n  %s", ErrNoNode, withoutNode)
	}
	missing := missingPackages(findTools())
	if len(missing) == 0 {
		return nil
	}
	install := "apt-get install --no-install-recommends " + strings.Join(missing, " ")
	apt, err := exec.LookPath("apt-get")
	if err != nil || !c.Install {
		return fmt.Errorf("%w: it lacks %s; install what is missing, on Debian with\n  %s\n  %s",
			ErrNoNode, strings.Join(missing, ", "), install, withoutNode)
	}
	fmt.Fprintf(c.Out, "  %-24s installing %s\n", "packages", strings.Join(missing, ", "))
	start := time.Now()
	if err := aptInstall(ctx, apt, missing); err != nil {
		return fmt.Errorf("%w: %s failed: %w\n  %s", ErrNoNode, install, err, withoutNode)
	}
	if still := missingPackages(findTools()); len(still) > 0 {
		return fmt.Errorf("%w: %s lacks programs although it is installed", ErrNoNode, strings.Join(still, ", "))
	}
	fmt.Fprintf(c.Out, "  %-24s installed in %s\n", "packages", elapsed(start))
	return nil
}

// aptInstall keeps Debian from starting a containerd of its own: a file that forbids services to start is
// in place while packages are installed, unless the machine has one already.
func aptInstall(ctx context.Context, apt string, packages []string) error {
	const policy = "/usr/sbin/policy-rc.d"
	if f, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755); err == nil {
		defer func() { _ = os.Remove(policy) }()
		_, err = f.WriteString("#!/bin/sh\nexit 101\n")
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"update", "-q"},
		append([]string{"install", "-q", "-y", "--no-install-recommends"}, packages...),
	} {
		cmd := exec.CommandContext(ctx, apt, append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...) // others may install now
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%w\n%s", err, lastLines(&out, 10))
		}
	}
	return nil
}
