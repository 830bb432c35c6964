// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Objects returns all objects of the kinds, in all namespaces, without what
// differs between two runs that did the same: identities, versions, times,
// addresses. The keys are "Kind.group namespace/name". Compare two of these with
// cmp.Diff.
func (c *Cluster) Objects(t testing.TB, kinds ...schema.GroupVersionKind) map[string]any {
	t.Helper()
	return c.objects(t, "", kinds)
}

// ObjectsIn is Objects for one namespace, whose name is replaced by NAMESPACE
// wherever it occurs, so that the ends of tests in two namespaces compare.
func (c *Cluster) ObjectsIn(t testing.TB, namespace string, kinds ...schema.GroupVersionKind) map[string]any {
	t.Helper()
	return c.objects(t, namespace, kinds)
}

func (c *Cluster) objects(t testing.TB, namespace string, kinds []schema.GroupVersionKind) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, kind := range kinds {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.client.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
			t.Fatalf("listing %s: %v", kind, err)
		}
		for _, item := range list.Items {
			key := fmt.Sprintf("%s %s/%s", kind.GroupKind(), item.GetNamespace(), item.GetName())
			all[rename(key, namespace).(string)] = rename(Normalize(item.Object), namespace)
		}
	}
	return all
}

// rename replaces the namespace in all strings of a value, keys included.
func rename(value any, namespace string) any {
	switch value := value.(type) {
	case string:
		if namespace == "" {
			return value
		}
		return strings.ReplaceAll(value, namespace, "NAMESPACE")
	case map[string]any:
		renamed := map[string]any{}
		for key, item := range value {
			renamed[rename(key, namespace).(string)] = rename(item, namespace)
		}
		return renamed
	case []any:
		renamed := make([]any, len(value))
		for i, item := range value {
			renamed[i] = rename(item, namespace)
		}
		return renamed
	}
	return value
}

// incidental are the metadata that say which object it is and when it was
// written, not what it says.
var incidental = []string{"uid", "resourceVersion", "generation", "managedFields", "creationTimestamp", "deletionTimestamp", "selfLink"}

// allocated are the fields of a Service that the server fills in from a pool.
var allocated = []string{"clusterIP", "clusterIPs", "healthCheckNodePort"}

// Normalize returns a copy of an object's content without what differs between
// two objects that say the same.
func Normalize(object map[string]any) map[string]any {
	kind, _ := object["kind"].(string)
	clean, _ := stripped(object).(map[string]any)
	meta, _ := clean["metadata"].(map[string]any)
	for _, field := range incidental {
		delete(meta, field)
	}
	owners, _ := meta["ownerReferences"].([]any)
	for _, owner := range owners {
		if owner, ok := owner.(map[string]any); ok {
			delete(owner, "uid")
		}
	}
	if spec, ok := clean["spec"].(map[string]any); ok && kind == "Service" && object["apiVersion"] == "v1" {
		// A headless Service is told by its address: None says something.
		if spec["clusterIP"] != "None" {
			for _, field := range allocated {
				delete(spec, field)
			}
		}
		ports, _ := spec["ports"].([]any)
		for _, port := range ports {
			if port, ok := port.(map[string]any); ok {
				delete(port, "nodePort")
			}
		}
	}
	return clean
}

// stripped copies a value without times and observed generations.
func stripped(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, item := range value {
			if key != "observedGeneration" && !isTime(key, item) {
				kept[key] = stripped(item)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(value))
		for i, item := range value {
			kept[i] = stripped(item)
		}
		return kept
	}
	return value
}

// isTime asks both the field's name and its value: a label may hold a date.
func isTime(key string, value any) bool {
	text, ok := value.(string)
	if !ok || !strings.HasSuffix(key, "Time") && !strings.HasSuffix(key, "Timestamp") && key != "time" {
		return false
	}
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}
