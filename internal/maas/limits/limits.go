// SPDX-License-Identifier: Apache-2.0

// Package limits says what subscriptions allow on models, and whether it can be. It knows nothing of who enforces it.
package limits

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
)

// longest is the longest window.
const longest = 366 * 24 * time.Hour

// On are the rates of a subscription on a model: all of them, also where the subscription names the model more than once.
func On(s *v1alpha1.MaaSSubscription, model types.NamespacedName) []v1alpha1.TokenRateLimit {
	var out []v1alpha1.TokenRateLimit
	for _, m := range s.Spec.ModelRefs {
		if m.Namespace == model.Namespace && m.Name == model.Name {
			out = append(out, m.TokenRateLimits...)
		}
	}
	return out
}

// Check says in a sentence why rates cannot hold; empty if they can.
func Check(rates []v1alpha1.TokenRateLimit) string {
	if len(rates) == 0 {
		return "There is no limit. Set tokenRateLimits."
	}
	for _, rate := range rates {
		window, err := Window(rate.Window)
		switch {
		case err != nil:
			return fmt.Sprintf("The window %q is not a length of time such as 30s, 5m or 24h. Correct it.", rate.Window)
		case window > longest:
			return fmt.Sprintf("The window %q is longer than 366 days (8784h). Choose a shorter one.", rate.Window)
		case rate.Limit < 1:
			return fmt.Sprintf("The limit %d is less than one token. Choose a higher one.", rate.Limit)
		}
	}
	return ""
}

// Window is a length of time as subscriptions write it.
func Window(text string) (time.Duration, error) {
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour}
	if len(text) < 2 { //nolint:mnd // a digit and a unit
		return 0, fmt.Errorf("%q is too short", text)
	}
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 16)
	unit := units[text[len(text)-1]]
	if err != nil || n == 0 || unit == 0 {
		return 0, fmt.Errorf("%q is no length of time", text)
	}
	return time.Duration(n) * unit, nil
}

// ByModel is an index of subscriptions and access policies by the models that they name.
func ByModel(obj client.Object) []string {
	var refs []v1alpha1.ModelRef
	switch o := obj.(type) {
	case *v1alpha1.MaaSAuthPolicy:
		refs = o.Spec.ModelRefs
	case *v1alpha1.MaaSSubscription:
		for _, m := range o.Spec.ModelRefs {
			refs = append(refs, m.ModelRef)
		}
	}
	seen, out := map[string]bool{}, []string(nil)
	for _, ref := range refs {
		if key := ref.Namespace + "/" + ref.Name; !seen[key] {
			seen[key], out = true, append(out, key)
		}
	}
	return out
}
