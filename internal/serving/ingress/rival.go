// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"net/url"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// Outline is a service as far as its addresses go.
func Outline(isvc *v1beta1.InferenceService) Service {
	s := Service{Name: isvc.Name, Namespace: isvc.Namespace, Labels: isvc.Labels, Annotations: isvc.Annotations}
	if isvc.Spec.Transformer != nil {
		s.Transformer = &Backend{}
	}
	if isvc.Spec.Explainer != nil {
		s.Explainer = &Backend{}
	}
	return s
}

// ClaimsOf are the addresses that a service takes requests at, where these are ours to give. A stopped service keeps
// its own, so that it can be started again.
func ClaimsOf(isvc *v1beta1.InferenceService, cfg *config.Config) []string {
	if cfg.Mode(isvc.Status.DeploymentMode, isvc.Annotations[v1beta1.AnnotationDeploymentMode]) != config.ModeStandard {
		return nil
	}
	out, err := Claims(Outline(isvc), cfg)
	if err != nil {
		return nil
	}
	return out
}

// Taken finds the service among others that an address of this one belongs to: the one that has it already, or else
// the one that was there first. It is nil where the addresses are free.
func Taken(isvc *v1beta1.InferenceService, others []v1beta1.InferenceService, cfg *config.Config) (address string, by *v1beta1.InferenceService) {
	mine := ClaimsOf(isvc, cfg)
	for i := range others {
		if address := Shared(mine, ClaimsOf(&others[i], cfg)); address != "" && first(&others[i], isvc, cfg) {
			return address, &others[i]
		}
	}
	return "", nil
}

// Shared is an address that is in both lists, or nothing.
func Shared(a, b []string) string {
	if i := slices.IndexFunc(a, func(address string) bool { return slices.Contains(b, address) }); i >= 0 {
		return a[i]
	}
	return ""
}

// first tells whether a, of two services with one address, has it.
func first(a, b *v1beta1.InferenceService, cfg *config.Config) bool {
	if x, y := holds(a, cfg), holds(b, cfg); x != y {
		return x
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) < 0
}

// holds tells whether a service is reached under its addresses now. Nobody can take them from it by a label or
// annotation that the template uses.
func holds(isvc *v1beta1.InferenceService, cfg *config.Config) bool {
	if isvc.Status.URL == nil {
		return false
	}
	u, err := url.Parse(*isvc.Status.URL)
	return err == nil && slices.Contains(ClaimsOf(isvc, cfg), u.Host)
}
