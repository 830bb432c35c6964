// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelplane/modelplane/internal/chart"
)

// A release is kept in Secrets as Helm keeps it, so that people go on with `helm upgrade` and `helm uninstall`. Helm's own
// code for this brings three hundred packages along that nothing else needs; kubectl comes with the cluster anyway.
const (
	fieldManager = "helm"
	// formerManager is who applied when Helm's code was part of this program, which it took for the program's name.
	formerManager = "up"
	maxHistory    = 3
	// done is the description of a release that was brought here by this code.
	done = "Installed by make up"
)

// release is the installation in one cluster.
type release struct {
	kubectl kubectl
	made    *chart.Made
	values  map[string]any
	// earlier are the revisions that the cluster has, oldest first.
	earlier []*releasev1.Release
}

type kubectl func(ctx context.Context, stdin string, args ...string) (string, error)

// install does what `helm upgrade --install --wait` does, except that it leaves a release alone that is already so.
func (u *up) install(ctx context.Context, kubeconfig string, values map[string]any) error {
	u.heading("the chart")
	start := time.Now()
	r, err := newRelease(ctx, chartDir, values, func(ctx context.Context, stdin string, args ...string) (string, error) {
		return u.kubectl(ctx, kubeconfig, stdin, args...)
	})
	if err != nil {
		return err
	}
	if last := r.last(); last != nil && last.Info.Status == common.StatusDeployed && last.Manifest == r.made.Manifest {
		u.say("chart", "installed already, revision %d", last.Version)
		return u.waitForManager(ctx, kubeconfig)
	}
	if err := r.install(ctx, u.timeout); err != nil {
		return fmt.Errorf("installing the chart: %w", err)
	}
	u.say("chart", "installed and ready in %s", since(start))
	return nil
}

// waitForManager is for a release that was ready once: its pods may have been killed meanwhile.
func (u *up) waitForManager(ctx context.Context, kubeconfig string) error {
	start := time.Now()
	_, err := u.kubectl(ctx, kubeconfig, "", "rollout", "status", "--namespace", chart.DefaultNamespace,
		"deployment/"+chart.DefaultRelease, "--timeout", u.timeout.String())
	if err != nil {
		return fmt.Errorf("the manager is not ready: %w", err)
	}
	u.say("manager", "ready in %s", since(start))
	return nil
}

// newRelease renders the chart and reads what the cluster has of it.
func newRelease(ctx context.Context, dir string, values map[string]any, k kubectl) (*release, error) {
	r := &release{kubectl: k, values: values}
	var err error
	if r.made, err = chart.Make(dir, chart.Release{Values: values}); err != nil {
		return nil, err
	}
	if err := r.ensureNamespace(ctx); err != nil {
		return nil, err
	}
	if err := r.readEarlier(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// ensureNamespace holds the manager to the strictest level of pod security, which `helm --create-namespace` cannot say.
func (r *release) ensureNamespace(ctx context.Context) error {
	const level = "restricted"
	return r.apply(ctx, map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": chart.DefaultNamespace, "labels": map[string]any{
			"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/warn": level,
		}},
	})
}

// last is the newest revision, or nil.
func (r *release) last() *releasev1.Release {
	if len(r.earlier) == 0 {
		return nil
	}
	return r.earlier[len(r.earlier)-1]
}

// install adds a revision: it writes down what it is about to do, does it, and writes down how that went. What is there
// without a release, such as definitions that a removed release left, is taken over.
func (r *release) install(ctx context.Context, timeout time.Duration) error {
	next := r.next()
	if err := r.write(ctx, next); err != nil {
		return err
	}
	err := r.bring(ctx, timeout)
	if err != nil {
		// Also when the person at the terminal has had enough.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		next.SetStatus(common.StatusFailed, "It was not installed: see the output of make up")
		return errors.Join(err, r.write(late, next))
	}
	next.SetStatus(common.StatusDeployed, done)
	return errors.Join(r.write(ctx, next), r.forget(ctx))
}

// next is the revision to come.
func (r *release) next() *releasev1.Release {
	now := time.Now()
	next := &releasev1.Release{
		Name: chart.DefaultRelease, Namespace: chart.DefaultNamespace, Version: 1, ApplyMethod: string(releasev1.ApplyMethodServerSideApply),
		Chart: r.made.Chart, Config: r.values, Manifest: r.made.Manifest,
		Info: &releasev1.Info{FirstDeployed: now, LastDeployed: now, Status: common.StatusPendingInstall, Notes: r.made.Notes},
	}
	if last := r.last(); last != nil {
		next.Version, next.Info.Status, next.Info.FirstDeployed = last.Version+1, common.StatusPendingUpgrade, last.Info.FirstDeployed
	}
	return next
}

// bring makes the cluster have what the chart says, and waits until it works.
func (r *release) bring(ctx context.Context, timeout time.Duration) error {
	if err := r.put(ctx); err != nil {
		return err
	}
	return r.wait(ctx, timeout)
}

// put applies all objects and removes those of earlier revisions that are no more.
func (r *release) put(ctx context.Context) error {
	var objects, names []any
	for _, o := range r.made.Objects {
		objects, names = append(objects, owned(o.Unstructured).Object), append(names, nameOf(o.Unstructured).Object)
	}
	if err := r.apply(ctx, objects...); err != nil {
		return err
	}
	if last := r.last(); last != nil && last.Info.Description != done {
		// Names alone leave the former manager no field.
		if err := r.applyAs(ctx, formerManager, names); err != nil {
			return err
		}
	}
	return r.prune(ctx)
}

// owned has the marks by which Helm knows its objects.
func owned(object *unstructured.Unstructured) *unstructured.Unstructured {
	out := object.DeepCopy()
	labels, annotations := out.GetLabels(), out.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels["app.kubernetes.io/managed-by"] = "Helm"
	annotations["meta.helm.sh/release-name"], annotations["meta.helm.sh/release-namespace"] = chart.DefaultRelease, chart.DefaultNamespace
	out.SetLabels(labels)
	out.SetAnnotations(annotations)
	return out
}

// nameOf is an object without content.
func nameOf(object *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetGroupVersionKind(object.GroupVersionKind())
	out.SetNamespace(object.GetNamespace())
	out.SetName(object.GetName())
	return out
}

// prune deletes what earlier revisions have and this one has not, unless it is to stay.
func (r *release) prune(ctx context.Context) error {
	id := func(o *unstructured.Unstructured) string {
		return o.GroupVersionKind().GroupKind().String() + " " + o.GetNamespace() + "/" + o.GetName()
	}
	seen := map[string]bool{}
	for _, o := range r.made.Objects {
		seen[id(o.Unstructured)] = true
	}
	var gone []any
	for _, earlier := range r.earlier {
		objects, err := chart.Objects(earlier.Manifest)
		if err != nil {
			return fmt.Errorf("reading revision %d: %w", earlier.Version, err)
		}
		for _, o := range objects {
			if !seen[id(o)] && o.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
				gone = append(gone, nameOf(o).Object)
			}
			seen[id(o)] = true
		}
	}
	if len(gone) == 0 {
		return nil
	}
	list, err := listOf(gone)
	if err != nil {
		return err
	}
	_, err = r.kubectl(ctx, list, "delete", "--namespace", chart.DefaultNamespace, "--ignore-not-found", "--wait=false", "-f", "-")
	return err
}

// wait ends when definitions are served, and Deployments and StatefulSets have rolled out; nothing else takes time.
func (r *release) wait(ctx context.Context, timeout time.Duration) error {
	established := []string{"wait", "--for=condition=Established", "--timeout", timeout.String()}
	var rolled []string
	for _, o := range r.made.Objects {
		switch o.GetKind() {
		case "CustomResourceDefinition":
			established = append(established, "customresourcedefinition/"+o.GetName())
		case "Deployment", "StatefulSet":
			rolled = append(rolled, strings.ToLower(o.GetKind())+"/"+o.GetName())
		}
	}
	if len(established) > 4 {
		if _, err := r.kubectl(ctx, "", established...); err != nil {
			return err
		}
	}
	for _, name := range rolled {
		if _, err := r.kubectl(ctx, "", "rollout", "status", "--namespace", chart.DefaultNamespace, name, "--timeout", timeout.String()); err != nil {
			return err
		}
	}
	return nil
}

// apply sends objects in their order. Whoever else has their fields loses them. A field that the API server does not know
// is refused by server-side apply itself; kubectl's own check would have the server describe all of its kinds first.
func (r *release) apply(ctx context.Context, objects ...any) error {
	return r.applyAs(ctx, fieldManager, objects)
}

func (r *release) applyAs(ctx context.Context, manager string, objects []any) error {
	list, err := listOf(objects)
	if err != nil {
		return err
	}
	_, err = r.kubectl(ctx, list, "apply", "--server-side", "--force-conflicts", "--validate=false", "--field-manager", manager,
		"--namespace", chart.DefaultNamespace, "-f", "-")
	return err
}

func listOf(objects []any) (string, error) {
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	return string(raw), err
}

// write keeps a revision.
func (r *release) write(ctx context.Context, rev *releasev1.Release) error {
	var packed bytes.Buffer
	into := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(into).Encode(rev), into.Close()); err != nil {
		return fmt.Errorf("writing down revision %d: %w", rev.Version, err)
	}
	// The value of the Secret is a text in base64; the Secret itself encodes it again.
	content := base64.StdEncoding.AppendEncode(nil, packed.Bytes())
	return r.apply(ctx, map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
		"metadata": map[string]any{"name": secretName(rev.Version), "namespace": chart.DefaultNamespace, "labels": map[string]any{
			"owner": "helm", "name": rev.Name, "status": rev.Info.Status.String(), "version": strconv.Itoa(rev.Version),
			"modifiedAt": strconv.FormatInt(time.Now().Unix(), 10),
		}},
		"data": map[string]any{"release": content},
	})
}

func secretName(version int) string {
	return fmt.Sprintf("sh.helm.release.v1.%s.v%d", chart.DefaultRelease, version)
}

// forget marks what was deployed before as superseded, and drops the oldest revisions.
func (r *release) forget(ctx context.Context) error {
	for i, rev := range r.earlier {
		if len(r.earlier)-i >= maxHistory {
			_, err := r.kubectl(ctx, "", "delete", "secret", "--namespace", chart.DefaultNamespace, "--ignore-not-found", secretName(rev.Version))
			if err != nil {
				return err
			}
			continue
		}
		status := rev.Info.Status
		switch {
		case status == common.StatusDeployed:
			rev.SetStatus(common.StatusSuperseded, rev.Info.Description)
		case status.IsPending():
			rev.SetStatus(common.StatusFailed, "interrupted")
		default:
			continue
		}
		if err := r.write(ctx, rev); err != nil {
			return err
		}
	}
	return nil
}

// readEarlier reads all revisions.
func (r *release) readEarlier(ctx context.Context) error {
	out, err := r.kubectl(ctx, "", "get", "secrets", "--namespace", chart.DefaultNamespace, "-l", "owner=helm,name="+chart.DefaultRelease, "-o", "json")
	if err != nil {
		return err
	}
	var secrets struct {
		Items []struct{ Data struct{ Release []byte } }
	}
	if err := json.Unmarshal([]byte(out), &secrets); err != nil {
		return fmt.Errorf("reading the releases: %w", err)
	}
	for _, s := range secrets.Items {
		rev, err := unpack(s.Data.Release)
		if err != nil {
			return fmt.Errorf("reading the releases: %w", err)
		}
		r.earlier = append(r.earlier, rev)
	}
	slices.SortFunc(r.earlier, func(a, b *releasev1.Release) int { return cmp.Compare(a.Version, b.Version) })
	return nil
}

func unpack(content []byte) (*releasev1.Release, error) {
	packed, err := base64.StdEncoding.AppendDecode(nil, content)
	if err != nil {
		return nil, err
	}
	from, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	rev := &releasev1.Release{}
	if err := json.Unmarshal(raw, rev); err != nil {
		return nil, err
	}
	if rev.Info == nil {
		rev.Info = &releasev1.Info{}
	}
	return rev, nil
}
