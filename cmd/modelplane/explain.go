// SPDX-License-Identifier: Apache-2.0

package main

import (
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
)

// newKnown is what explain knows of every room.
func newKnown() (*cli.Known, error) {
	all, err := domains.All()
	if err != nil {
		return nil, err
	}
	k := &cli.Known{Scheme: runtime.NewScheme(), About: domains.About()}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, gatewayv1.Install, admission.AddToScheme} {
		if err := add(k.Scheme); err != nil {
			return nil, err
		}
	}
	for _, d := range all {
		k.Controllers = append(k.Controllers, d.Controllers...)
	}
	return k, nil
}
