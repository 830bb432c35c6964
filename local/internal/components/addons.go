// SPDX-License-Identifier: Apache-2.0

package components

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/modelplane/modelplane/local/internal/addons"
)

// runAddons enters the one program here that is our own.
func runAddons() int {
	flags := flag.NewFlagSet("addons", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server (also spelt --kubeconfig)")
	var o addons.Options
	flags.StringVar(&o.Volumes, "volumes", "", "directory below which claims get their volumes")
	flags.StringVar(&o.Health, "health", "127.0.0.1:0", "address that tells when everything is being watched")
	flags.StringVar(&o.Metrics, "metrics", "", "address that answers the API metrics.k8s.io (default: none)")
	flags.StringVar(&o.Kubelet, "kubelet", "", "where usage is asked for")
	flags.StringVar(&o.Certificate, "tls-cert-file", "", "certificate for that address")
	flags.StringVar(&o.Key, "tls-private-key-file", "", "its key")
	flags.StringVar(&o.FrontProxyCA, "requestheader-client-ca-file", "", "authority that vouches for the API server there")
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err == nil {
		err = addons.Run(ctx, config, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "addons:", err)
		return 1
	}
	return 0
}
