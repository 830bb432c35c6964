// SPDX-License-Identifier: Apache-2.0

// Package link tells a model registry of the InferenceServices that serve its models: a service with the known labels
// appears there, follows its address, and is undeployed when it is deleted. It looks after InferenceServices beside the
// controller that runs them, has a condition of its own, and must never stand in the way of a service, nor of its
// deletion.
//
// What a user writes on a service decides which registry is called, so it is called with the manager's token only where
// the platform says that it may be. The registry is called by the executor alone; everything else is pure.
package link

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
)

// Link is the controller and what the platform says of it.
type Link struct {
	settings Settings
	client   *client
	now      func() time.Time
	// patience is how long a registry that fails is given when a service is deleted.
	patience time.Duration
}

// New is a link that is on, and trusts no registry with a token.
func New() *Link {
	const restart = 20 * time.Second // of a registry; a person who deletes waits that long
	return &Link{client: newClient(Settings{}), now: time.Now, patience: restart}
}

// WithSettings takes other settings. It is called before the controller starts.
func (l *Link) WithSettings(s Settings) *Link {
	l.settings, l.client = s, newClient(s)
	return l
}

// ofRegistries selects the Services of registries.
var ofRegistries = labels.SelectorFromSet(labels.Set{"component": "model-registry"})

// ConditionLinked says what the registry knows of a service. It is absent where nobody asks, and no part of Ready.
const ConditionLinked = "RegistryLinked"

// Controller is the second one of InferenceServices.
func (l *Link) Controller() engine.Controller {
	return engine.For[*v1beta1.InferenceService, Seen](services{l}, engine.Spec{
		Name:              "registrylink",
		Ready:             ConditionLinked,
		ReadyEvent:        "RegistryLinked",
		KnativeConditions: true,
		Status:            &engine.StatusOwnership{Conditions: []string{ConditionLinked}},
		Finalizer:         kubeflow.finalizer(),
		OldFinalizers:     []string{openDataHub.finalizer()},
		SetsLabels:        true,
		Executor:          l.execute,
		CallTimeout:       callTimeout,
		Inputs: []engine.Input{
			{Object: &corev1.Service{}, Select: ofRegistries},
			{Object: &corev1.Secret{}, MetadataOnly: true},
		},
	})
}

// services is the kind InferenceService, as far as registries are concerned.
type services struct{ *Link }

var (
	_ engine.Kind[*v1beta1.InferenceService, Seen]     = services{}
	_ engine.Teardown[*v1beta1.InferenceService, Seen] = services{}
)

// Seen is what the decision about a service depends on.
type Seen struct {
	// Off says that services are no longer linked.
	Off bool
	// Registry is the one that is meant; Problem is why there is none.
	Registry Registry
	Problem  *problem
	// Told and Ended are what came of the calls.
	Told, Ended engine.Answer
	// Patient says that a registry which fails may still come back in time for the end of a service.
	Patient bool
}

// The calls.
const (
	callTell = "tell-registry"
	callEnd  = "undeploy"
)

// Observe implements engine.Kind.
func (s services) Observe(ctx context.Context, r engine.Reader, isvc *v1beta1.InferenceService) (Seen, error) {
	seen := Seen{Off: s.settings.Off}
	ask := wishOf(isvc)
	if seen.Off || !ask.linked() {
		return seen, nil
	}
	list := &corev1.ServiceList{}
	if err := r.List(ctx, list); err != nil {
		return seen, err
	}
	seen.Registry, seen.Problem = s.settings.find(ask, isvc.Namespace, list.Items)
	if seen.Problem == nil {
		if err := addRoots(ctx, r, &seen.Registry); err != nil {
			return seen, err
		}
	}
	key := keyOf(isvc, seen.Registry)
	seen.Told, seen.Ended = r.Answer(callTell, key), r.Answer(callEnd, key)
	if end := isvc.DeletionTimestamp; end != nil {
		seen.Patient = s.now().Sub(end.Time) < s.patience
	}
	return seen, nil
}

// proxySuffix is what the Secret is called, after its registry, that a registry of the cluster proves its name with.
const proxySuffix = "-kube-rbac-proxy"

// addRoots reads which authority has signed the certificate of a registry, where we made it.
func addRoots(ctx context.Context, r engine.Reader, of *Registry) error {
	namespace, name, service := strings.Cut(of.Name, "/")
	if !service || !strings.HasPrefix(of.URL, "https://"+name+"."+namespace+".svc:") {
		return nil
	}
	secret := &corev1.Secret{}
	err := r.GetUncached(ctx, kubeclient.ObjectKey{Namespace: namespace, Name: name + proxySuffix}, secret)
	if err == nil {
		of.Roots = string(secret.Data["ca.crt"])
	}
	return kubeclient.IgnoreNotFound(err)
}
