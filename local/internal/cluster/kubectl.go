// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// apply returns how many objects were new or different.
func (b *bringUp) apply(ctx context.Context, what string, manifests []byte) (int, error) {
	if len(manifests) == 0 {
		return 0, nil
	}
	start := time.Now()
	out, err := b.kubectl(ctx, manifests, "apply", "-f", "-")
	if err != nil {
		return 0, fmt.Errorf("applying %s: %w", what, err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	changed := 0
	for _, line := range lines {
		if !strings.HasSuffix(line, " unchanged") {
			changed++
		}
	}
	b.say(what, "%d applied (%d changed) in %s", len(lines), changed, elapsed(start))
	return changed, nil
}

// kubectl runs the linked-in kubectl against this cluster only, whatever the environment says.
func (b *bringUp) kubectl(ctx context.Context, stdin []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, b.Executable, append([]string{"kubectl", "--kubeconfig=" + b.Kubeconfig()}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", args[0], err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}
