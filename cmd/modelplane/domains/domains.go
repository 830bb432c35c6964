// SPDX-License-Identifier: Apache-2.0

// Package domains is the one list of the rooms of the house. The binary, the
// chart's generator and the tests take it from here; no room does.
package domains

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas"
	"github.com/modelplane/modelplane/internal/manager"
	"github.com/modelplane/modelplane/internal/mlflow"
	"github.com/modelplane/modelplane/internal/modelregistry"
	"github.com/modelplane/modelplane/internal/serving"
)

// room is a domain before its definitions are read, which takes a moment: a
// person who asks for help need not wait for it.
type room struct {
	name        string
	admission   func() ([]admission.Kind, error) // nil: strict decoding only
	controllers func() []engine.Controller       // nil: none
	extend      func(*manager.Domain)            // nil: nothing more
}

// rooms are made anew for every process and test: what they hold is their own.
func rooms() []room {
	models, tracking, registries, asService := serving.New(), mlflow.New(), modelregistry.New(), maas.New()
	platform, many := &configuration{}, newModelMesh()
	return []room{
		{
			name:        admission.Serving,
			admission:   models.Admission,
			controllers: models.Controllers,
			extend:      func(d *manager.Domain) { completeServing(d, models, platform) },
		},
		{
			name:        admission.ModelMesh,
			admission:   func() ([]admission.Kind, error) { return withUsed(admission.ModelMesh, models.Admission) },
			controllers: many.controllers,
			extend:      func(d *manager.Domain) { many.complete(d, models, platform) },
		},
		{
			name:        admission.ModelRegistry,
			admission:   registries.Admission,
			controllers: registries.Controllers,
			extend: func(d *manager.Domain) {
				completeModelRegistry(d, registries)
				withLink(d)
				withCatalog(d)
			},
		},
		{
			name:        admission.MaaS,
			admission:   asService.Admission,
			controllers: asService.Controllers,
			extend:      func(d *manager.Domain) { completeMaaS(d, asService) },
		},
		{
			name:        admission.MLflow,
			admission:   mlflow.Admission,
			controllers: tracking.Controllers,
			extend:      func(d *manager.Domain) { completeMLflow(d, tracking) },
		},
	}
}

// withUsed are the kinds of a domain and those that it uses of another, with the
// other's rules.
func withUsed(domain string, other func() ([]admission.Kind, error)) ([]admission.Kind, error) {
	kinds, err := admission.Kinds(domain)
	if err != nil {
		return nil, err
	}
	theirs, err := other()
	for _, k := range theirs {
		if slices.Contains(admission.Uses(domain), k.GVK.GroupKind()) {
			kinds = append(kinds, k)
		}
	}
	return kinds, err
}

// Names of all domains, in their order.
func Names() []string {
	var names []string
	for _, r := range rooms() {
		names = append(names, r.name)
	}
	return names
}

// All domains with their kinds and controllers. Every domain registers all
// types: they share groups, and conversion is served for all of them.
func All() ([]manager.Domain, error) {
	var out []manager.Domain
	for _, r := range rooms() {
		d := manager.Domain{Name: r.name, AddToScheme: admission.AddToScheme}
		kinds := r.admission
		if kinds == nil {
			kinds = func() ([]admission.Kind, error) { return admission.Kinds(r.name) }
		}
		var err error
		if d.Admission, err = kinds(); err != nil {
			return nil, fmt.Errorf("set up %s: %w", r.name, err)
		}
		if r.controllers != nil {
			d.Controllers = r.controllers()
		}
		if r.extend != nil {
			r.extend(&d)
		}
		out = append(out, d)
	}
	return out, warnOfUnattended(out)
}

// quiet are kinds that controllers of others read, and two whose controllers run only where they are asked for.
var quiet = []string{"AIHub", "ClusterServingRuntime", "ClusterStorageContainer", "LLMInferenceServiceConfig", "MLflowConfig", "MLflowOperator", "ServingRuntime"}

// OnlyRead tells such kinds from those that nobody looks after yet.
func OnlyRead(kind string) bool { return slices.Contains(quiet, kind) }

// warnOfUnattended lets kinds say that there is no controller for them yet.
func warnOfUnattended(domains []manager.Domain) error {
	scheme, err := NewScheme()
	if err == nil {
		err = admission.AddToScheme(scheme)
	}
	attended := map[schema.GroupKind]bool{}
	for _, d := range domains {
		for _, c := range d.Controllers {
			gvk, failed := apiutil.GVKForObject(c.Object(), scheme)
			attended[gvk.GroupKind()] = true
			err = errors.Join(err, failed)
		}
	}
	for _, d := range domains {
		for i, k := range d.Admission {
			if !attended[k.GVK.GroupKind()] && !OnlyRead(k.GVK.Kind) {
				d.Admission[i] = k.Unattended()
			}
		}
	}
	return err
}

// NewScheme knows every type that a domain reads or writes.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), serving.AddToScheme(scheme))
}
