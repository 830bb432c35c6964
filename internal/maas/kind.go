// SPDX-License-Identifier: Apache-2.0

// Package maas is models as a service: models that tenants publish, who may use them, and how much of them. Its rooms below
// look after one kind each; this one only puts them together.
package maas

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/authpolicies"
	"github.com/modelplane/modelplane/internal/maas/external"
	"github.com/modelplane/modelplane/internal/maas/gatewaypolicies"
	"github.com/modelplane/modelplane/internal/maas/modelrefs"
	"github.com/modelplane/modelplane/internal/maas/platform"
	"github.com/modelplane/modelplane/internal/maas/settings"
	"github.com/modelplane/modelplane/internal/maas/subscriptions"
	"github.com/modelplane/modelplane/internal/maas/tenants"
	"github.com/modelplane/modelplane/internal/maas/webhooks"
)

// AddToScheme makes a scheme know every kind that the domain reads or writes.
func AddToScheme(scheme *runtime.Scheme) error {
	return errors.Join(admission.AddToScheme(scheme), gatewayv1.Install(scheme))
}

// Domain is the domain.
type Domain struct {
	settings settings.Settings
	external external.Settings
	tenants  tenants.Platform
	platform platform.Platform
}

// New prepares the domain as it is without a cluster: nothing secret is made.
func New() *Domain {
	d := &Domain{}
	d.tenants.DeletionTimeout = tenants.DefaultDeletionTimeout
	d.tenants.Now, d.platform.Now = time.Now, time.Now
	return d.WithSettings(settings.Default("")).WithImage("modelplane:dev")
}

// WithSettings takes the settings of a platform. The controllers must not run yet.
func (d *Domain) WithSettings(s settings.Settings) *Domain {
	d.settings, d.tenants.Settings, d.platform.Settings = s, s, s
	d.external = external.Settings{Gateway: types.NamespacedName{Namespace: s.GatewayNamespace, Name: s.GatewayName}, TenantsNamespace: s.TenantNamespace}
	return d
}

// WithImage says of what image the services of tenants are run.
func (d *Domain) WithImage(image string) *Domain {
	d.tenants.Image, d.platform.Image = image, image
	return d
}

// WithDeletionTimeout says how long the end of a tenant waits for what is in its way; zero: for ever.
func (d *Domain) WithDeletionTimeout(timeout time.Duration) *Domain {
	d.tenants.DeletionTimeout = timeout
	return d
}

// WithCertificates makes certificates for the services of tenants from now on.
func (d *Domain) WithCertificates() *Domain {
	d.platform.Pairs = &certs.Pairs{}
	return d
}

// Admission is the kinds of the domain with their rules.
func (d *Domain) Admission() ([]admission.Kind, error) {
	kinds, err := admission.Kinds(admission.MaaS)
	return webhooks.Rules(kinds, d.current), err
}

func (d *Domain) current() settings.Settings { return d.settings }

// Controllers of the domain.
func (d *Domain) Controllers() []engine.Controller {
	own := []engine.Controller{
		modelrefs.Controller(d.current), subscriptions.Controller(d.current), authpolicies.Controller(d.current), gatewaypolicies.Controller(d.current),
		platform.Controller(&d.platform),
	}
	return slices.Concat(own, tenants.Controllers(&d.tenants), external.Controllers(&d.external))
}
