// SPDX-License-Identifier: Apache-2.0

// Package defaultruntimes brings the objects into the cluster that come with a release
// but cannot be part of it: runtimes and storage containers, whose kinds the
// release itself defines and whose webhooks the manager itself answers. They are
// listed in one ConfigMap, and what is taken out of it is removed again.
//
// It leaves alone what somebody else made under the same name, and does not undo
// what people change in the objects. An object that carries Asked stays as it is
// until somebody asks for another: a release with newer images must not restart
// the servers of a whole cluster. Without the ConfigMap nothing is touched: it goes
// first when the release is uninstalled, and what it brought stays. The package must
// not know what a runtime is.
package defaultruntimes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
)

// Name of the ConfigMap; it lives in the manager's own namespace.
const Name = "modelplane-shipped"

const (
	// Label marks the objects that were brought, so that they are found again.
	Label = "modelplane.dev/shipped"
	// digestKey is the annotation that tells which version was brought.
	digestKey = "modelplane.dev/shipped-digest"
	// Asked is the annotation that tells what the installation was asked for, as
	// opposed to what the release happens to bring.
	Asked = "modelplane.dev/shipped-asked"
)

// kinds that may be brought. The ConfigMap is not a way to make anything else.
var kinds = []schema.GroupVersionKind{
	v1alpha1.GroupVersion.WithKind("ClusterServingRuntime"),
	v1alpha1.GroupVersion.WithKind("ClusterStorageContainer"),
}

// id tells objects apart; none of the kinds has a namespace.
type id struct{ kind, name string }

func (i id) String() string { return i.kind + " " + i.name }

func idOf(o *unstructured.Unstructured) id { return id{o.GetKind(), o.GetName()} }

// wanted reads what the ConfigMap lists. The error is about entries that cannot
// be read; the others are returned nevertheless.
func wanted(cm *corev1.ConfigMap) (map[id]*unstructured.Unstructured, error) {
	out := make(map[id]*unstructured.Unstructured, len(cm.Data))
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		o, err := read(cm.Data[key])
		if err == nil && out[idOf(o)] != nil {
			err = fmt.Errorf("%s is listed twice", idOf(o))
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s in ConfigMap %s: %w", key, Name, err))
			continue
		}
		out[idOf(o)] = o
	}
	return out, errors.Join(problems...)
}

// read turns one entry into an object that carries our marks.
func read(text string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		return nil, err
	}
	if !slices.Contains(kinds, o.GroupVersionKind()) {
		return nil, fmt.Errorf("a %s is nothing that a release brings", o.GroupVersionKind())
	}
	if o.GetName() == "" {
		return nil, errors.New("it has no name")
	}
	raw, err := json.Marshal(o.Object)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	o.SetLabels(with(o.GetLabels(), Label, "true"))
	o.SetAnnotations(with(o.GetAnnotations(), digestKey, hex.EncodeToString(sum[:])))
	return o, nil
}

func with(m map[string]string, key, value string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}
