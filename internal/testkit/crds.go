// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// crdTimeout bounds the wait for a definition to be served or gone.
const crdTimeout = 30 * time.Second

// InstallCRDs creates or updates definitions and returns when every version of
// them is served and found by discovery. They stay for the tests that follow.
func (c *Cluster) InstallCRDs(t testing.TB, crds ...*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	for _, crd := range crds {
		if err := c.putCRD(context.Background(), crd); err != nil {
			t.Fatalf("installing CustomResourceDefinition %s: %v", crd.Name, err)
		}
	}
	for _, crd := range crds {
		Eventually(t, crdTimeout, "CustomResourceDefinition "+crd.Name+" to be served", func() error {
			return c.served(context.Background(), crd)
		})
	}
}

// putCRD works on copies: callers share their definitions between tests.
func (c *Cluster) putCRD(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		err := c.client.Create(ctx, crd.DeepCopy())
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		var live apiextensionsv1.CustomResourceDefinition
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(crd), &live); err != nil {
			return err
		}
		crd.Spec.DeepCopyInto(&live.Spec)
		live.Labels, live.Annotations = crd.Labels, crd.Annotations
		return c.client.Update(ctx, &live)
	})
}

// served says what is still missing before every version can be used.
func (c *Cluster) served(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	var live apiextensionsv1.CustomResourceDefinition
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(crd), &live); err != nil {
		return err
	}
	if err := established(&live); err != nil {
		return err
	}
	if err := c.backdate(ctx, &live); err != nil {
		return err
	}
	found, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	for _, version := range live.Spec.Versions {
		if !version.Served {
			continue
		}
		gvr := schema.GroupVersionResource{Group: live.Spec.Group, Version: version.Name, Resource: live.Spec.Names.Plural}
		if err := discovered(found, gvr); err != nil {
			return err
		}
		if _, err := objects.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
	}
	return nil
}

func established(crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, condition := range crd.Status.Conditions {
		switch {
		case condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue:
			return nil
		case condition.Type == apiextensionsv1.NamesAccepted && condition.Status == apiextensionsv1.ConditionFalse:
			return fmt.Errorf("names not accepted: %s", condition.Message)
		}
	}
	return errors.New("not established yet")
}

// backdate makes a definition look older than it is. The server makes creates
// of a brand-new kind wait for two seconds, for the sake of other servers that
// may not know it yet; here there are none.
func (c *Cluster) backdate(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	changed := false
	for i := range crd.Status.Conditions {
		condition := &crd.Status.Conditions[i]
		if condition.Type == apiextensionsv1.Established && time.Since(condition.LastTransitionTime.Time) < time.Minute {
			condition.LastTransitionTime = metav1.NewTime(condition.LastTransitionTime.Add(-time.Hour))
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return c.client.Status().Update(ctx, crd)
}

func discovered(found *discovery.DiscoveryClient, gvr schema.GroupVersionResource) error {
	list, err := found.ServerResourcesForGroupVersion(gvr.GroupVersion().String())
	if err != nil {
		return err
	}
	for _, resource := range list.APIResources {
		if resource.Name == gvr.Resource {
			return nil
		}
	}
	return fmt.Errorf("discovery does not list %s in %s yet", gvr.Resource, gvr.GroupVersion())
}

// RemoveCRDs deletes definitions by name, with all their objects, and returns
// when they are gone, also from discovery. A definition that does not exist is
// as good as gone.
func (c *Cluster) RemoveCRDs(t testing.TB, names ...string) {
	t.Helper()
	ctx := context.Background()
	var gone []apiextensionsv1.CustomResourceDefinition
	for _, name := range names {
		var crd apiextensionsv1.CustomResourceDefinition
		err := c.client.Get(ctx, client.ObjectKey{Name: name}, &crd)
		if err == nil {
			gone = append(gone, crd)
			err = c.client.Delete(ctx, &crd)
		}
		if ignoreNotFound(err) != nil {
			t.Fatalf("removing CustomResourceDefinition %s: %v", name, err)
		}
	}
	for i := range gone {
		Eventually(t, crdTimeout, "CustomResourceDefinition "+gone[i].Name+" to be gone", func() error {
			return c.goneCRD(ctx, &gone[i])
		})
	}
}

// goneCRD says what holds a removed definition back; usually a finalizer of one
// of its objects.
func (c *Cluster) goneCRD(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	var live apiextensionsv1.CustomResourceDefinition
	err := c.client.Get(ctx, client.ObjectKeyFromObject(crd), &live)
	switch {
	case err == nil:
		for _, condition := range live.Status.Conditions {
			if condition.Type == apiextensionsv1.Terminating {
				return fmt.Errorf("still there: %s (an object with a finalizer?)", condition.Message)
			}
		}
		return errors.New("still there")
	case !apierrors.IsNotFound(err):
		return err
	}
	found, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		return err
	}
	for _, version := range crd.Spec.Versions {
		gvr := schema.GroupVersionResource{Group: crd.Spec.Group, Version: version.Name, Resource: crd.Spec.Names.Plural}
		if discovered(found, gvr) == nil {
			return fmt.Errorf("discovery still lists %s in %s", gvr.Resource, gvr.GroupVersion())
		}
	}
	return nil
}
