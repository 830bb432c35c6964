// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// childKinds are those that a manager may make for a service in Standard mode.
var childKinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Version: "v1", Kind: "Service"},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"},
}

// childrenOf copies what a manager made of a service, without what the server
// added and without the owner.
func (b *bed) childrenOf(ctx context.Context, name string) []string {
	b.t.Helper()
	owner := &v1beta1.InferenceService{}
	if err := b.client.Get(ctx, client.ObjectKey{Namespace: space, Name: name}, owner); err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, kind := range childKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := b.client.List(ctx, list, client.InNamespace(space)); err != nil {
			b.t.Fatal(err)
		}
		for _, child := range list.Items {
			if !metav1.IsControlledBy(&child, owner) {
				continue
			}
			text, err := json.Marshal(bare(child))
			if err != nil {
				b.t.Fatal(err)
			}
			out = append(out, string(text))
		}
	}
	return out
}

func bare(child unstructured.Unstructured) map[string]any {
	o := child.DeepCopy().Object
	delete(o, "status")
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "ownerReferences"} {
		unstructured.RemoveNestedField(o, "metadata", field)
	}
	if ip, _, _ := unstructured.NestedString(o, "spec", "clusterIP"); ip != "None" {
		unstructured.RemoveNestedField(o, "spec", "clusterIP")
		unstructured.RemoveNestedField(o, "spec", "clusterIPs")
	}
	return o
}

// floorResult is what a plain client needs.
type floorResult struct {
	Seconds  float64 `json:"seconds"`
	Children int     `json:"childrenPerService"`
	Requests int     `json:"requests"`
	// Made are the seconds after which the children of services were all created.
	Made []float64 `json:"made"`
}

// measureFloor creates the children of n services by a client that decides
// nothing and waits for nothing, in a cluster of its own, with as many workers,
// the same account and the same proxy as the manager.
func measureFloor(t testing.TB, children []string, n, workers int) *floorResult {
	t.Helper()
	b := newBed(t, n, nil)
	ctx := t.Context()
	plain, err := client.New(b.proxy.through(b.measured), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := makeChildren(ctx, plain, children, 0); err != nil { // opens connections, learns the kinds
		t.Fatal(err)
	}
	var mu sync.Mutex
	var made []time.Duration
	before, begin := b.proxy.Snapshot(), time.Now()
	err = parallel(n, workers, func(i int) error {
		if err := makeChildren(ctx, plain, children, i); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		made = append(made, time.Since(begin))
		return nil
	})
	if err != nil {
		t.Fatalf("create children as a plain client: %v", err)
	}
	slices.Sort(made)
	return &floorResult{
		Seconds: made[len(made)-1].Seconds(), Children: len(children),
		Requests: b.proxy.work(before).Total(), Made: seconds(made),
	}
}

func makeChildren(ctx context.Context, plain client.Client, children []string, i int) error {
	for _, text := range children {
		child := &unstructured.Unstructured{}
		if err := child.UnmarshalJSON([]byte(strings.ReplaceAll(text, nameOf(0), nameOf(i)))); err != nil {
			return err
		}
		if err := plain.Create(ctx, child); err != nil {
			return fmt.Errorf("%s %s: %w", child.GetKind(), child.GetName(), err)
		}
	}
	return nil
}

func seconds(all []time.Duration) []float64 {
	out := make([]float64, len(all))
	for i, d := range all {
		out[i] = d.Round(time.Millisecond).Seconds()
	}
	return out
}
