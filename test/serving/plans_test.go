// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/manager"
	"github.com/modelplane/modelplane/internal/serving/activation"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// products are all third parties that serving knows, by the API group that a plan may do without.
var products = map[string]testkit.API{
	"gateway.networking.k8s.io": testkit.GatewayAPI,
	"serving.knative.dev":       testkit.Knative,
	"networking.istio.io":       testkit.Istio,
	"keda.sh":                   testkit.KEDA,
	"opentelemetry.io":          testkit.OpenTelemetry,
}

// apart are cases that a cluster does not show, with the reason. So are all that were decided for another version of
// Kubernetes.
var apart = map[string]string{
	"canary-invalid":     "the Deployment of a canary that cannot be made is in no plan, and stays",
	"config-bad-knative": "only in a file can a service that nobody has looked at be of the generation that was looked at",
	"headless-later":     "the plan is a step on the way: at its end the Service has been made anew, see TestConfigurationChanges",
	"headless-no-longer": "the plan is a step on the way: at its end the Service has been made anew, see TestConfigurationChanges",
	"keda-after-hpa":     "the plan is a step on the way: at its end the HPA is gone and KEDA scales",

	"frozen-by-another-and-down": "the plan is a step on the way: at its end the pods are those of a Deployment",
	"rollout-lags":               "only in a file was there a spec before the first one of a Deployment",

	"image-beside-a-server-that-runs": "only in a file does a service run that nobody has looked at",
	"image-beside-after-an-upgrade":   "only in a file does a service run that nobody has looked at",
	"registry-id-kept-where-it-is":    "only in a file does a service run that nobody has looked at",

	"zero-activator-gone": "the plan is a step on the way: at its end the pods have come, and requests go to them",
}

// TestPlansComeTrue: what was planned from files happens in a cluster. Each case is admitted by the API server with our
// webhooks, or refused with the words of the file; then the manager, which until then stood by while another replica
// had the lease, meets just the objects of the files, and makes of them what the files say.
func TestPlansComeTrue(t *testing.T) {
	h := install(t, testkit.StartOwn(t))
	for _, api := range products {
		h.Install(t, api)
	}
	s := &stage{house: h, world: readWorld(t)}
	h.Create(t, &corev1.Namespace{ObjectMeta: objectMeta("", "gateways")})
	s.listen(t)
	for _, act := range acts(readPlans(t, h.Platform)) {
		s.play(t, act)
	}
}

func readWorld(t testing.TB) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(around)
	if err != nil {
		t.Fatal(err)
	}
	return documents(t, string(text))
}

// act is the cases that can be shown at the same time, because they need the same cluster around them.
type act struct {
	without string
	outside []*unstructured.Unstructured // in no namespace, or in the platform's
	plans   []*plan
}

// acts sorts cases by what they need besides their own namespace. What is to be refused never gets into the cluster.
func acts(all []*plan) []*act {
	var out []*act
	by := map[string]*act{}
	for _, p := range all {
		if p.kubernetes != "" || apart[p.name] != "" {
			continue
		}
		outside := p.outside()
		raw, _ := json.Marshal(outside) // trees that were read from JSON
		key := p.without + string(raw)
		if by[key] == nil {
			by[key] = &act{without: p.without, outside: outside}
			out = append(out, by[key])
		}
		by[key].plans = append(by[key].plans, p)
	}
	return out
}

// outside are the objects of a case that other cases would meet as well. Those of a refused case are tried one by one.
func (p *plan) outside() []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, u := range p.in {
		if u.GetNamespace() != p.name && (p.refusal == "" || u.GetKind() == "ConfigMap") {
			out = append(out, u)
		}
	}
	return out
}

// inside are the others.
func (p *plan) inside() []*unstructured.Unstructured {
	outside := p.outside()
	return slices.DeleteFunc(slices.Clone(p.in), func(u *unstructured.Unstructured) bool { return slices.Contains(outside, u) })
}

// stage is where acts follow each other.
type stage struct {
	*house
	world []*unstructured.Unstructured
	heard []string // warnings
}

// listen hears the warnings that come with an answer.
func (s *stage) listen(t testing.TB) {
	t.Helper()
	cfg := s.Config()
	cfg.WarningHandler = s
	var err error
	if s.C, err = client.New(cfg, client.Options{Scheme: servingtest.Scheme}); err != nil {
		t.Fatal(err)
	}
}

// HandleWarningHeader implements rest.WarningHandler.
func (s *stage) HandleWarningHeader(_ int, _, text string) { s.heard = append(s.heard, text) }

// play shows one act with a manager of its own.
func (s *stage) play(t *testing.T, a *act) {
	if a.without != "" {
		s.Remove(t, products[a.without])
		defer s.Install(t, products[a.without])
	}
	s.standBy(t)
	opts := s.options(t)
	opts.LeaderElection = true
	opts.Lease = manager.Lease{RetryPeriod: 100 * time.Millisecond}
	stop := s.run(t, s.Manager, opts)
	scenery := slices.DeleteFunc(slices.Concat(s.world, a.outside), func(u *unstructured.Unstructured) bool {
		return a.without != "" && u.GroupVersionKind().Group == a.without
	})
	for _, u := range scenery {
		s.place(t, u.DeepCopy())
	}
	for _, p := range a.plans {
		t.Run(p.name+"/admission", func(t *testing.T) { s.admit(t, p) })
	}
	s.lead(t)
	accepted := slices.DeleteFunc(slices.Clone(a.plans), func(p *plan) bool { return !p.accepted })
	for _, p := range accepted {
		t.Run(p.name, func(t *testing.T) { s.comesTrue(t, p) })
	}
	for _, p := range accepted {
		if err := s.differs(t.Context(), p); err != nil && !t.Failed() {
			t.Errorf("%s did not stay as it was planned: %v", p.name, err)
		}
	}
	stop()
	s.clear(t, a, scenery)
}

func (s *stage) lease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: objectMeta(s.Platform, manager.LeaseName)}
}

// standBy gives the lease to a replica that is not there.
func (s *stage) standBy(t testing.TB) {
	t.Helper()
	if err := s.C.Delete(t.Context(), s.lease()); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	held := s.lease()
	held.Spec.HolderIdentity, held.Spec.LeaseDurationSeconds = ptr.To("another"), ptr.To[int32](3600)
	held.Spec.AcquireTime = ptr.To(metav1.NowMicro())
	held.Spec.RenewTime = held.Spec.AcquireTime
	s.Create(t, held)
}

// lead lets the manager have the lease.
func (s *stage) lead(t testing.TB) {
	t.Helper()
	if err := s.C.Delete(t.Context(), s.lease()); err != nil {
		t.Fatal(err)
	}
}

// admit creates the objects of a case.
func (s *stage) admit(t *testing.T, p *plan) {
	if p.refusal != "" {
		s.refuses(t, p)
		return
	}
	s.heard, p.accepted = nil, true
	s.Create(t, &corev1.Namespace{ObjectMeta: objectMeta("", p.name)})
	var first *unstructured.Unstructured
	for _, u := range p.inside() {
		obj := u.DeepCopy()
		if slices.Contains(played, u.GetKind()) {
			if p.makes(u) {
				continue
			}
			belong(obj, first)
		}
		s.place(t, obj)
		if first == nil {
			first = obj
		}
	}
	for _, d := range p.decided {
		for _, w := range d.warnings {
			if !slices.ContainsFunc(s.heard, func(h string) bool { return strings.Contains(h, w) }) {
				t.Errorf("nobody was warned: %s", w)
			}
		}
	}
}

// makes tells whether a Deployment is left to the manager to make. The files hold only what is looked at, which is no
// good beginning for one that is to be changed in place.
func (p *plan) makes(u *unstructured.Unstructured) bool {
	return u.GetKind() == "Deployment" && slices.ContainsFunc(p.decided[0].children, func(c *unstructured.Unstructured) bool {
		return c.GetKind() == u.GetKind() && c.GetName() == u.GetName()
	})
}

// belong makes an object look as if the manager had made it earlier.
func belong(obj, owner *unstructured.Unstructured) {
	all := map[string]string{engine.LabelOwner: string(owner.GetUID())}
	maps.Copy(all, obj.GetLabels())
	obj.SetLabels(all)
	obj.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
}

// refuses expects one object of a case to be refused, and removes those before it.
func (s *stage) refuses(t *testing.T, p *plan) {
	for _, u := range p.inside() {
		obj := u.DeepCopy()
		if obj.GetNamespace() != "" {
			obj.SetNamespace(s.NS)
		}
		err := s.C.Create(t.Context(), obj)
		if err == nil {
			t.Cleanup(func() {
				if err := s.C.Delete(context.Background(), obj); err != nil {
					t.Error(err)
				}
			})
			continue
		}
		if !strings.Contains(err.Error(), p.refusal) {
			t.Errorf("refused with\n%v\nand not with\n%s", err, p.refusal)
		}
		return
	}
	t.Error("nothing was refused")
}

// place creates an object with the generation and the status that it has in the file.
func (s *stage) place(t testing.TB, u *unstructured.Unstructured) {
	t.Helper()
	status, generation, ours := u.Object["status"], u.GetGeneration(), u.GetKind() == "InferenceService"
	withoutAddress(u)
	s.write(t, u, ours)
	if status == nil {
		return
	}
	shift(status, u.GetGeneration()-generation)
	u.Object["status"] = status
	if err := s.C.Status().Update(t.Context(), u); err != nil {
		t.Fatalf("status of %s %s: %v", u.GetKind(), u.GetName(), err)
	}
	if !ours {
		return
	}
	// Rules that look at the status have their turn with the next change.
	if err := s.C.Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
}

// withoutAddress leaves the address of a Service to the cluster.
func withoutAddress(u *unstructured.Unstructured) {
	if address, _, _ := unstructured.NestedString(u.Object, "spec", "clusterIP"); u.GetKind() == "Service" && net.ParseIP(address) != nil {
		unstructured.RemoveNestedField(u.Object, "spec", "clusterIP")
	}
}

// write creates an object. A service is changed until it is what it is in the file, at the generation of the file.
func (s *stage) write(t testing.TB, u *unstructured.Unstructured, ours bool) {
	t.Helper()
	if !ours || u.GetGeneration() < 2 {
		s.Create(t, u)
		return
	}
	spec, last := u.Object["spec"], u.GetGeneration()
	for i := int64(1); i <= last; i++ {
		u.Object["spec"] = runtime.DeepCopyJSONValue(spec)
		if i < last {
			if err := unstructured.SetNestedField(u.Object, i, "spec", "predictor", "timeout"); err != nil {
				t.Fatal(err)
			}
		}
		if i == 1 {
			s.Create(t, u)
		} else if err := s.C.Update(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
}

// clear removes what the next manager must not meet. Namespaces and children stay behind: nobody looks after them.
func (s *stage) clear(t testing.TB, a *act, scenery []*unstructured.Unstructured) {
	t.Helper()
	gone := slices.Clone(scenery)
	for _, p := range a.plans {
		if p.accepted {
			gone = append(gone, p.inside()...)
		}
	}
	for _, u := range gone {
		if err := s.C.Delete(t.Context(), u.DeepCopy(), client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			t.Fatalf("remove %s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
}

// comesTrue plays those whose status is in the file, and waits for the manager to say and make what was decided.
func (s *stage) comesTrue(t *testing.T, p *plan) {
	testkit.Eventually(t, patience, "the plan to come true", func() error {
		// First, because a Deployment's status speaks of the number of pods that it was given last.
		if err := errors.Join(s.scale(t.Context(), p.name), s.activate(t.Context(), p)); err != nil {
			return err
		}
		for _, u := range p.inside() {
			if err := s.act(t.Context(), u); err != nil {
				return err
			}
		}
		return s.differs(t.Context(), p)
	})
}

const (
	// unsaid is in the conditions of what depends on a service about which nothing is known before it is planned.
	unsaid = "It has not said why yet"
	// shared is the one child that belongs to all services of a namespace.
	shared = "ConfigMap global-ca-bundle"
)

// differs says what is not as it was decided.
func (s *stage) differs(ctx context.Context, p *plan) error {
	var wrong []string
	for _, d := range p.decided {
		found, err := s.differsIn(ctx, p, d)
		if err != nil {
			return err
		}
		wrong = append(wrong, found...)
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

func (s *stage) differsIn(ctx context.Context, p *plan, d decision) ([]string, error) {
	owner, err := s.find(ctx, p, d)
	if err != nil || owner == nil {
		return nil, err
	}
	wrong := missing("status", d.status, owner.Object["status"])
	if diff := cmp.Diff(d.conditions, conditionsOf(owner)); diff != "" && !strings.Contains(fmt.Sprint(d.conditions), unsaid) {
		wrong = append(wrong, "conditions (-planned +told):\n"+diff)
	}
	names, planned := []string{}, p.uid(d)
	for _, child := range d.children {
		name, live := child.GetKind()+" "+child.GetName(), child.DeepCopy()
		if err := s.C.Get(ctx, client.ObjectKeyFromObject(child), live); err != nil {
			return nil, err
		}
		if child = withoutAddresses(child); child.GetKind() == "Deployment" && p.activated(child.GetName()) {
			child = child.DeepCopy() // it only begins with so many pods
			unstructured.RemoveNestedField(child.Object, "spec", "replicas")
		}
		wrong = append(wrong, missing(name, withoutKeys(d, child, planned).Object, withoutKeys(d, withoutAddresses(live), owner.GetUID()).Object)...)
		if name != shared {
			names = append(names, name)
		}
	}
	have, err := s.children(ctx, owner)
	if ledLater(names) {
		have = slices.DeleteFunc(have, isSlice)
	}
	if slices.Sort(names); !d.hold && !cmp.Equal(names, have) {
		wrong = append(wrong, "children (-planned +made):\n"+cmp.Diff(names, have))
	}
	return wrong, err
}

func isSlice(name string) bool { return strings.HasPrefix(name, "EndpointSlice ") }

// ledLater tells that a plan lets the activator know of a component, which leads requests there in the next step.
func ledLater(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		return strings.HasPrefix(n, "Service ") && strings.HasSuffix(n, activation.Suffix)
	}) &&
		!slices.ContainsFunc(names, isSlice)
}

// withoutAddresses takes the addresses of Services out of what the activator is told of them: the cluster gives them.
func withoutAddresses(u *unstructured.Unstructured) *unstructured.Unstructured {
	settings, err := activation.Decode(u.GetAnnotations()[activation.Annotation])
	if err != nil {
		return u
	}
	settings.Hosts = slices.DeleteFunc(settings.Hosts, func(h string) bool { return net.ParseIP(h) != nil })
	u = u.DeepCopy()
	annotations := u.GetAnnotations()
	annotations[activation.Annotation] = settings.Encode()
	u.SetAnnotations(annotations)
	return u
}

// withoutKeys takes the keys of a service's components out of what the activator and the gateway are told of them: the cluster gave
// the service another UID than the file, and keys come from it. Others stay, and are seen.
func withoutKeys(d decision, u *unstructured.Unstructured, uid types.UID) *unstructured.Unstructured {
	text, err := json.Marshal(u)
	if err != nil {
		return u
	}
	for _, c := range d.children {
		component, found := strings.CutSuffix(c.GetName(), activation.Suffix)
		key := activation.KeyOf(uid, component)
		if c.GetKind() != "Service" || !found || key == "" {
			continue
		}
		text = bytes.ReplaceAll(text, []byte(`,\"key\":\"`+key+`\"`), nil)
		text = bytes.ReplaceAll(text, []byte(key), nil)
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(text); err != nil {
		return u
	}
	return out
}

// uid is that of a decision's object in the file.
func (p *plan) uid(d decision) types.UID {
	for _, u := range p.in {
		if u.GetKind() == d.kind && u.GetName() == d.name {
			return u.GetUID()
		}
	}
	return ""
}

// find reads the object of a decision. Nothing is decided about some kinds.
func (s *stage) find(ctx context.Context, p *plan, d decision) (*unstructured.Unstructured, error) {
	if len(d.conditions) == 0 {
		return nil, nil
	}
	i := slices.IndexFunc(p.in, func(u *unstructured.Unstructured) bool { return u.GetKind() == d.kind && u.GetName() == d.name })
	if i < 0 {
		return nil, fmt.Errorf("no %s %s in the file", d.kind, d.name)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(p.in[i].GroupVersionKind())
	return live, s.C.Get(ctx, client.ObjectKeyFromObject(p.in[i]), live)
}

// made are the kinds of children.
var made = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "ConfigMap"},
	{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}, {Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}, {Group: "serving.knative.dev", Version: "v1", Kind: "Service"},
	{Group: "networking.istio.io", Version: "v1beta1", Kind: "VirtualService"}, {Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"},
	{Group: "opentelemetry.io", Version: "v1beta1", Kind: "OpenTelemetryCollector"},
}

// children lists what belongs to an object.
func (s *stage) children(ctx context.Context, owner *unstructured.Unstructured) ([]string, error) {
	names := []string{}
	for _, gvk := range made {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		err := s.C.List(ctx, list, client.InNamespace(owner.GetNamespace()), client.MatchingLabels{engine.LabelOwner: string(owner.GetUID())})
		if notServed(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, item := range list.Items {
			names = append(names, item.GetKind()+" "+item.GetName())
		}
	}
	slices.Sort(names)
	return names, nil
}
