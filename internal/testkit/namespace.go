// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Namespace creates a namespace with a name of its own for the test. At the end
// of the test it is emptied and removed, finalizers or not, because a manager of
// the next test that watches all namespaces would otherwise meet its objects.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(t.Name())}}
	if err := c.client.Create(context.Background(), ns); err != nil {
		t.Fatalf("creating a namespace for the test: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience(t, time.Minute))
		defer cancel()
		if err := c.removeNamespace(ctx, ns.Name); err != nil {
			t.Logf("namespace %s of the finished test could not be removed: %v", ns.Name, err)
		}
	})
	return ns.Name
}

// namespaceName keeps the test's name readable in the namespace.
func namespaceName(test string) string {
	const longest = 40
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + ('a' - 'A')
		}
		return '-'
	}, strings.TrimPrefix(test, "Test"))
	clean = strings.Trim(clean[:min(len(clean), longest)], "-")
	return "t-" + clean + "-" + rand.String(6)
}

// removeNamespace does the work of the namespace controller, which is not there.
func (c *Cluster) removeNamespace(ctx context.Context, name string) error {
	cfg := c.Config()
	cfg.WarningHandler = rest.NoWarnings{}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	// From here on the server refuses new objects in it.
	if err := kube.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return ignoreNotFound(err)
	}
	emptied := emptyNamespace(ctx, cfg, kube.Discovery(), name)
	ns, err := kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return errors.Join(emptied, ignoreNotFound(err))
	}
	ns.Spec.Finalizers = nil
	_, err = kube.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
	return errors.Join(emptied, ignoreNotFound(err))
}

func emptyNamespace(ctx context.Context, cfg *rest.Config, found discovery.DiscoveryInterface, name string) error {
	objects, err := metadata.NewForConfig(cfg)
	if err != nil {
		return err
	}
	// A group that is just going away makes discovery incomplete, not useless.
	lists, err := discovery.ServerPreferredNamespacedResources(found)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return err
	}
	var all []error
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "deletecollection") && slices.Contains(resource.Verbs, "list") {
				all = append(all, deleteAll(ctx, objects.Resource(gv.WithResource(resource.Name)).Namespace(name)))
			}
		}
	}
	return errors.Join(all...)
}

// deleteAll deletes every object of a resource in a namespace, at once and
// without waiting for those who asked to be waited for.
func deleteAll(ctx context.Context, objects metadata.ResourceInterface) error {
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return ignoreNotFound(err)
	}
	now, background := int64(0), metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{GracePeriodSeconds: &now, PropagationPolicy: &background}
	if err := objects.DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
		return ignoreNotFound(err)
	}
	var all []error
	for _, item := range list.Items {
		if len(item.Finalizers) > 0 {
			_, err := objects.Patch(ctx, item.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if ignoreNotFound(err) != nil {
				all = append(all, fmt.Errorf("releasing %s: %w", item.Name, err))
			}
		}
	}
	return errors.Join(all...)
}

// ignoreNotFound also covers a resource whose definition has just been removed.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil
	}
	return err
}
