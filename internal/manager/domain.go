// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/engine"
)

// Domain is one group of kinds that can be enabled on its own.
type Domain struct {
	Name        string
	AddToScheme func(*runtime.Scheme) error
	// Admission is the kinds whose webhooks are served.
	Admission []admission.Kind
	// Hooks are its webhooks on kinds that are not its own.
	Hooks []admission.Hook
	// Guards are its webhooks on kinds that another domain admits.
	Guards []admission.Guard
	// Controllers run in the one engine of the process.
	Controllers []engine.Controller
	// Home are the resources that its controllers read one by one and write in one namespace only, as deployments.apps.
	Home []string
	// Named are the only names that its controllers give to resources without a namespace.
	Named map[string][]string
	// WholeCluster is set for a domain whose objects have no namespace, so that it cannot be limited to some.
	WholeCluster bool
	// Options are parts that run only where somebody asks for them. Their controllers are among Controllers where the
	// environment does; what they need is granted only then.
	Options []Option
	// Marked are packages whose RBAC markers say what the domain needs beyond its controllers.
	Marked []string
	// Setup adds what is neither; nil when there is no such thing.
	Setup func(ctx context.Context, mgr ctrl.Manager, o SetupOptions) error
}

// SetupOptions is what a domain needs to know about the process.
type SetupOptions struct {
	Namespace string
	Workers   int
	// Watched are the namespaces that are looked after; all if empty.
	Watched []string
}

// Names lists the domains in their order.
func Names(domains []Domain) []string {
	var names []string
	for _, d := range domains {
		names = append(names, d.Name)
	}
	return names
}

// Wanted understands a list of names as a person writes it. A name that is not known is refused: a misspelt domain
// would otherwise be missing without a word.
func Wanted(known, enable []string) ([]string, error) {
	var wanted []string
	for _, name := range enable {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
		case slices.Contains(known, name):
			wanted = append(wanted, name)
		default:
			return nil, fmt.Errorf("--enable: there is no domain %q; choose from %s", name, strings.Join(known, ", "))
		}
	}
	if len(wanted) == 0 {
		return nil, errors.New("--enable names no domain; choose from " + strings.Join(known, ", "))
	}
	return wanted, nil
}

// Select picks domains by name, in the order of the list. A kind that several of
// them use is admitted once.
func Select(domains []Domain, enable []string) ([]Domain, error) {
	wanted, err := Wanted(Names(domains), enable)
	if err != nil {
		return nil, err
	}
	var selected []Domain
	for _, d := range domains {
		if slices.Contains(wanted, d.Name) {
			d.Admission = slices.DeleteFunc(slices.Clone(d.Admission), func(k admission.Kind) bool { return admits(selected, k) })
			selected = append(selected, d)
		}
	}
	return selected, nil
}

// Kinds are those that domains admit, each once.
func Kinds(domains []Domain) []admission.Kind {
	var out []admission.Kind
	for i, d := range domains {
		for _, k := range d.Admission {
			if !admits(domains[:i], k) {
				out = append(out, k)
			}
		}
	}
	return out
}

func admits(domains []Domain, kind admission.Kind) bool {
	return slices.ContainsFunc(domains, func(d Domain) bool {
		return slices.ContainsFunc(d.Admission, func(k admission.Kind) bool { return k.GVK == kind.GVK })
	})
}

// confine refuses domains that cannot be limited to namespaces, where these are given: what they would silently leave out
// nobody would know.
func confine(namespaces []string, domains []Domain) error {
	for _, d := range domains {
		if len(namespaces) > 0 && d.WholeCluster {
			return fmt.Errorf("--watch-namespace: the objects of %s have no namespace; leave it out of --enable, or run it in an installation for the whole cluster", d.Name)
		}
	}
	return nil
}

// Option is a part of a domain with a switch.
type Option struct {
	// Name of the switch below the domain's in the values of the chart.
	Name string
	// Env is the variable that switches it on when it is "true".
	Env         string
	Controllers []engine.Controller
	// Named as in Domain.
	Named map[string][]string
}
