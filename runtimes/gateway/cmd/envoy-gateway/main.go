// SPDX-License-Identifier: Apache-2.0

// Command envoy-gateway is Envoy Gateway as the local cluster runs it: the controller that has Envoy do what
// HTTPRoutes say, and beside each Envoy what lets it end without losing requests. It adds nothing to Envoy Gateway's
// own commands.
//
//	envoy-gateway server                    the controller
//	envoy-gateway certgen                   makes the certificates between the controller and Envoy
//	envoy-gateway envoy shutdown-manager    beside an Envoy
package main

import (
	"fmt"
	"os"

	"github.com/envoyproxy/gateway/cmd/envoy-gateway/root"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := root.GetRootCommand(nil).ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "envoy-gateway:", err)
		os.Exit(1)
	}
}
