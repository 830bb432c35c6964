// SPDX-License-Identifier: Apache-2.0

// Package maas is models as a service: models that tenants publish, who may use them, and how much of them. Its rooms below
// look after one kind each; this one only puts them together.
package maas

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/authpolicies"
	"github.com/modelplane/modelplane/internal/maas/gatewaypolicies"
	"github.com/modelplane/modelplane/internal/maas/modelrefs"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/maas/subscriptions"
)

// AddToScheme makes a scheme know every kind that the domain reads or writes.
func AddToScheme(scheme *runtime.Scheme) error {
	return errors.Join(admission.AddToScheme(scheme), gatewayv1.Install(scheme))
}

// Domain is the domain.
type Domain struct{ settings settings.Settings }

// New prepares the domain as it is without a cluster.
func New() *Domain { return &Domain{settings: settings.Default("")} }

// WithSettings takes the settings of a platform. The controllers must not run yet.
func (d *Domain) WithSettings(s settings.Settings) *Domain {
	d.settings = s
	return d
}

func (d *Domain) current() settings.Settings { return d.settings }

// Controllers of the domain.
func (d *Domain) Controllers() []engine.Controller {
	return []engine.Controller{
		modelrefs.Controller(d.current), subscriptions.Controller(d.current), authpolicies.Controller(d.current), gatewaypolicies.Controller(d.current),
	}
}
