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
)

// Domain is one group of kinds that can be enabled on its own.
type Domain struct {
	Name        string
	AddToScheme func(*runtime.Scheme) error
	// Setup adds the domain's controllers; nil when it has none.
	Setup func(ctx context.Context, mgr ctrl.Manager, o SetupOptions) error
	// Admission is the kinds whose webhooks are served.
	Admission []admission.Kind
}

// SetupOptions is what a domain needs to know about the process.
type SetupOptions struct {
	Namespace string
	Workers   int
}

// Names lists the domains in their order.
func Names(domains []Domain) []string {
	var names []string
	for _, d := range domains {
		names = append(names, d.Name)
	}
	return names
}

// Select picks domains by name, in the order of the list. A name that is not there is refused: a misspelt domain would
// otherwise be missing without a word.
func Select(domains []Domain, enable []string) ([]Domain, error) {
	known := Names(domains)
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
	var selected []Domain
	for _, d := range domains {
		if slices.Contains(wanted, d.Name) {
			selected = append(selected, d)
		}
	}
	return selected, nil
}
