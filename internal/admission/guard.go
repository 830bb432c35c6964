// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Guard is a webhook with which a domain looks at kinds that are admitted by another, at a path of its own.
type Guard struct {
	Name, Path string
	// Kinds with their Validate. Nothing else of them counts.
	Kinds []Kind
}

// RegisterGuards serves guards.
func RegisterGuards(server webhook.Server, scheme *runtime.Scheme, guards ...Guard) error {
	for _, c := range guards {
		kinds := slices.Clone(c.Kinds)
		for i := range kinds {
			kinds[i].at, kinds[i].Default = c.Path, nil
		}
		if err := Register(server, scheme, kinds...); err != nil {
			return err
		}
	}
	return nil
}

// WithGuards adds guards to a configuration.
func WithGuards(validating *admissionregistrationv1.ValidatingWebhookConfiguration, service Service, guards ...Guard) error {
	plurals, err := resources()
	if err != nil {
		return err
	}
	for _, c := range guards {
		var hook *admissionregistrationv1.ValidatingWebhook
		for _, k := range c.Kinds {
			plural, ok := plurals[k.GVK]
			if !ok {
				return fmt.Errorf("webhook for %s: there is no definition of it", k.GVK)
			}
			one := k.validatingWebhook(service, plural, versions(plurals, k.GVK))
			if hook == nil {
				one.Name, one.ClientConfig = c.Name, service.clientConfig(c.Path)
				hook = &one
				continue
			}
			hook.Rules = append(hook.Rules, one.Rules...)
		}
		if hook != nil {
			validating.Webhooks = append(validating.Webhooks, *hook)
		}
	}
	return nil
}

// Guarded are kinds that have to pass the guards besides their own rules, for where no API server asks.
func Guarded(kinds []Kind, guards ...Guard) []Kind {
	out := slices.Clone(kinds)
	for _, c := range guards {
		for _, more := range c.Kinds {
			if i := slices.IndexFunc(out, func(k Kind) bool { return k.GVK == more.GVK }); i >= 0 {
				out[i].Validate = together(out[i].Validate, more.Validate)
			}
		}
	}
	return out
}

type validate = func(ctx context.Context, old, obj client.Object) ([]string, error)

func together(a, b validate) validate {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return func(ctx context.Context, old, obj client.Object) ([]string, error) {
		warnings, err := a(ctx, old, obj)
		more, failed := b(ctx, old, obj)
		if err == nil || failed == nil {
			return append(warnings, more...), errors.Join(err, failed)
		}
		return append(warnings, more...), err // one after the other, as a person mends them
	}
}
