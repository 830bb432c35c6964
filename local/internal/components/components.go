// SPDX-License-Identifier: Apache-2.0

// Package components holds the programs that are linked into modelplane-local and picks one of them
// by name. It knows how each is entered, not how a cluster is put together from them: flags,
// certificates and processes belong to package cluster.
//
// The programs share process-wide state (flag sets, feature gates, metric registries), which is safe
// only because exactly one of them is ever built and run in a process. Nothing here may therefore
// construct a component's command before it has been chosen.
package components

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	_ "time/tzdata" // CronJob time zones must resolve on machines without a zone database.

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubeconfig files may ask for any login plugin.
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Component is one program inside the multi-call binary.
type Component struct {
	// Name is both the name of the symlink that selects the program and its first-argument spelling.
	Name string
	// Run enters the program. It reads os.Args as if the program had been started on its own and
	// returns the exit code.
	Run func() int
}

// table is the one place where a program is added.
var table = []Component{
	{"etcd", runEtcd},
	{"kube-apiserver", func() int { return cli.Run(apiserver.NewAPIServerCommand()) }},
	{"kube-controller-manager", func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) }},
	{"kube-scheduler", func() int { return cli.Run(scheduler.NewSchedulerCommand()) }},
	{"kubelet", func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) }},
	{"kube-proxy", func() int { return cli.Run(proxy.NewProxyCommand()) }},
	{"coredns", runDNS},
	{"addons", runAddons},
	{"kubectl", runKubectl},
}

// Names lists every program in the order in which a control plane starts them.
func Names() []string {
	names := make([]string, 0, len(table))
	for _, c := range table {
		names = append(names, c.Name)
	}
	return names
}

// Select finds the program that args ask for: by the base name the binary was called by, or else by
// the first argument. It returns the arguments that program should see, starting with its own name.
func Select(args []string) (Component, []string, bool) {
	if len(args) == 0 {
		return Component{}, nil, false
	}
	if c, ok := find(filepath.Base(args[0])); ok {
		return c, args, true
	}
	if len(args) > 1 {
		if c, ok := find(args[1]); ok {
			return c, args[1:], true
		}
	}
	return Component{}, nil, false
}

func find(name string) (Component, bool) {
	i := slices.IndexFunc(table, func(c Component) bool { return c.Name == name })
	if i < 0 {
		return Component{}, false
	}
	return table[i], true
}

// runEtcd never reports a failure by value: etcd ends the process itself when it cannot start.
func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

// runKubectl sets the log level before the command exists, because building kubectl's command already
// looks for plugins and reads the user's preferences, and both may log.
func runKubectl() int {
	if _, err := logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)); err != nil {
		kubectlutil.CheckErr(err)
	}
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
