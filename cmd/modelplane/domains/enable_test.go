// SPDX-License-Identifier: Apache-2.0

package domains_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/manager"
)

// TestEveryDomainAdmitsWhatItUses: with any one domain enabled, every kind of
// ours that it looks after, reads or makes is admitted and defaulted by the same
// rules as with all of them.
func TestEveryDomainAdmitsWhatItUses(t *testing.T) {
	all, err := domains.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range domains.Names() {
		t.Run(name, func(t *testing.T) {
			alone, err := manager.Select(all, []string{name})
			if err != nil {
				t.Fatal(err)
			}
			for _, gk := range used(t, alone[0]) {
				admits(t, all, alone, gk)
			}
		})
	}
	both, err := manager.Select(all, domains.Names())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[schema.GroupVersionKind]bool{}
	for _, d := range both {
		for _, k := range d.Admission {
			if seen[k.GVK] {
				t.Errorf("%s is admitted twice", k.GVK)
			}
			seen[k.GVK] = true
		}
	}
}

func admits(t *testing.T, all, alone []manager.Domain, gk schema.GroupKind) {
	t.Helper()
	for _, want := range manager.Kinds(all) {
		if want.GVK.GroupKind() != gk {
			continue
		}
		have := manager.Kinds(alone)
		i := slices.IndexFunc(have, func(k admission.Kind) bool { return k.GVK == want.GVK })
		if i < 0 {
			t.Errorf("%s is not admitted", want.GVK)
			continue
		}
		if (have[i].Default == nil) != (want.Default == nil) || (have[i].Validate == nil) != (want.Validate == nil) {
			t.Errorf("%s is admitted by other rules than with all domains", want.GVK)
		}
	}
}

// used are the kinds that a domain's controllers look after, read and make, and
// those that it says it uses. A second controller follows objects that another one,
// perhaps of another installation, admits and runs.
func used(t *testing.T, d manager.Domain) []schema.GroupKind {
	t.Helper()
	scheme, err := domains.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	out := admission.Uses(d.Name)
	controllers := d.Controllers
	for _, o := range d.Options {
		controllers = append(controllers, o.Controllers...)
	}
	for _, c := range controllers {
		var objects []client.Object
		if c.Spec().Status == nil {
			objects = append(objects, c.Object())
		}
		for _, k := range c.Spec().Children {
			objects = append(objects, k.Object)
		}
		for _, in := range c.Spec().Inputs {
			// What may be absent is somebody else's, who admits it: models that another installation runs are read as they are.
			if !in.Optional {
				objects = append(objects, in.Object)
			}
		}
		for _, obj := range objects {
			gvk, err := apiutil.GVKForObject(obj, scheme)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, gvk.GroupKind())
		}
	}
	if kinds, err := admission.Kinds(d.Name); err == nil {
		for _, k := range kinds {
			out = append(out, k.GVK.GroupKind())
		}
	}
	return out
}
