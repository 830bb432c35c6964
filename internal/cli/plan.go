// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/process/command"
)

// Planner decides about manifests without a cluster, with the code that decides
// in one.
type Planner struct {
	Scheme      *runtime.Scheme
	Schemas     *admission.Schemas
	Kinds       []admission.Kind
	Controllers []engine.Controller
	// Without are API groups that count as not installed.
	Without []string
	// Namespace is given to namespaced objects that have none.
	Namespace string
	// Around are objects that stand around: decisions look at them, but nothing
	// is decided about them.
	Around []*unstructured.Unstructured
	// Shipped stand around like these, unless the manifests have an object of the
	// same kind and name.
	Shipped []*unstructured.Unstructured
}

// Refusal is what admission would say of a manifest.
type Refusal struct {
	From string
	Err  error
}

func (r *Refusal) Error() string { return r.From + ": " + r.Err.Error() }

func (r *Refusal) Unwrap() error { return r.Err }

// ExitCode tells scripts a refusal from a failure and a wrong call.
func (r *Refusal) ExitCode() int { return command.ExitNo }

// planned is an object that was accepted, with what was decided about it.
type planned struct {
	object   client.Object
	gvk      schema.GroupVersionKind
	warnings []string
	// foreign is set for an object of somebody else's kind, of which something may be made all the same.
	foreign bool
	decided bool
	engine.Decision
}

// nothing tells whether nothing comes of an object.
func (d *planned) nothing() bool {
	return len(d.Children)+len(d.Events)+len(d.Calls) == 0 && d.Problem == nil && d.DeleteSelf == nil
}

// NewPlanCommand is `modelplane plan`. The planner is made when the command runs.
func NewPlanCommand(planner func() (*Planner, error)) *cobra.Command {
	var files, without []string
	var namespace, output string
	var bare, strict bool
	c := &cobra.Command{
		Use:   "plan -f FILE...",
		Short: "Show what manifests become, without a cluster",
		Long: `Reads manifests (objects, lists of them, and whatever they refer to), runs the
same defaulting, validation and planning as the manager, and prints the children
as YAML with the conditions, and what other systems would be told, as comments.
No cluster is contacted. The runtimes and the configuration of a new installation
stand around, unless the manifests have their own.

Exit code: 0 planned, 2 refused (with the message that admission would give) or
warned of with --strict, 1 failed, 64 wrong call.`,
		Example: `  modelplane plan -f service.yaml
  modelplane plan -f service.yaml -f runtimes/ --without-api gateway.networking.k8s.io
  kustomize build . | modelplane plan -f - --strict
  kubectl get isvc -A -o yaml | modelplane plan -f - -o json`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if output != outputYAML && output != outputJSON {
				return fmt.Errorf("--output %q is unknown; use %s or %s", output, outputYAML, outputJSON)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := planner()
			if err != nil {
				return err
			}
			p.Without, p.Namespace = without, namespace
			if bare {
				p.Shipped = nil
			}
			manifests, err := readManifests(files, cmd.InOrStdin())
			if err != nil {
				return err
			}
			d, err := p.decideAll(cmd.Context(), manifests)
			if err != nil {
				return err
			}
			if err := d.print(cmd.OutOrStdout(), output); err != nil || !strict {
				return err
			}
			return d.strict()
		},
	}
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, `file or folder with manifests, "-" for the standard input; may be repeated`)
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of objects that name none")
	c.Flags().StringSliceVar(&without, "without-api", nil, "API group that the cluster does not serve; may be repeated")
	c.Flags().BoolVar(&bare, "bare", false, "leave out the runtimes and the configuration of a new installation")
	c.Flags().BoolVar(&strict, "strict", false, "take a warning for a refusal")
	c.Flags().StringVarP(&output, "output", "o", outputYAML, "how to print: yaml or json")
	_ = c.MarkFlagRequired("filename")
	return c
}

// PlanText plans the manifests of one text; golden tests of the domains use it.
func (p *Planner) PlanText(ctx context.Context, name string, text []byte, out io.Writer) error {
	manifests, err := split(name, text)
	if err != nil {
		return err
	}
	d, err := p.decideAll(ctx, manifests)
	if err != nil {
		return err
	}
	return render(out, d.made)
}

// decisions are what was decided about manifests, in their order.
type decisions struct {
	made []*planned
	// skipped are objects that were only looked at.
	skipped []string
}

// strict is a refusal if there are warnings.
func (d *decisions) strict() error {
	n := 0
	for _, m := range d.made {
		n += len(m.warnings)
	}
	if n > 0 {
		return &Refusal{From: "--strict", Err: fmt.Errorf("%d warnings", n)}
	}
	return nil
}

// decideAll admits all manifests, then decides about each that has a controller.
func (p *Planner) decideAll(ctx context.Context, manifests []*manifest) (*decisions, error) {
	world := &engine.World{Scheme: p.Scheme, Without: p.Without, Objects: slices.Concat(p.Around, p.unless(manifests))}
	ctx = admission.WithReader(ctx, world)
	accepted := map[*manifest]*planned{}
	for _, m := range p.inOrder(manifests) {
		obj, warnings, err := p.admit(ctx, m)
		if err != nil {
			return nil, &Refusal{From: m.from, Err: err}
		}
		world.Objects = append(world.Objects, m.Unstructured)
		if obj != nil {
			accepted[m] = &planned{object: obj, gvk: m.GroupVersionKind(), warnings: warnings, foreign: p.kindOf(m.GroupVersionKind()) < 0}
		}
	}
	out := &decisions{}
	for _, m := range manifests {
		a := accepted[m]
		if a == nil {
			out.skipped = append(out.skipped, m.GetKind()+" "+nameOf(m))
			continue
		}
		if err := p.decide(ctx, world, a); err != nil {
			return nil, err
		}
		if a.foreign && a.nothing() {
			out.skipped = append(out.skipped, m.GetKind()+" "+nameOf(m))
			continue
		}
		out.made = append(out.made, a)
	}
	return out, nil
}

// unless leaves out what is shipped and also among the manifests. One without a namespace is taken for it: the
// configuration is the platform's, wherever that runs.
func (p *Planner) unless(manifests []*manifest) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(p.Shipped), func(u *unstructured.Unstructured) bool {
		return slices.ContainsFunc(manifests, func(m *manifest) bool {
			return m.GroupVersionKind() == u.GroupVersionKind() && m.GetName() == u.GetName()
		})
	})
}

// inOrder puts what others refer to before them, wherever in the files it is: objects of other kinds, such as the
// configuration, then ours that have no controller, such as runtimes. The rest keep their order, as if they were created
// one after the other.
func (p *Planner) inOrder(manifests []*manifest) []*manifest {
	rank := func(m *manifest) int {
		switch gvk := m.GroupVersionKind(); {
		case p.kindOf(gvk) < 0:
			return 0
		case !p.attended(gvk):
			return 1
		}
		return 2
	}
	return slices.SortedStableFunc(slices.Values(manifests), func(a, b *manifest) int { return rank(a) - rank(b) })
}

func (p *Planner) looksAfter(c engine.Controller, gvk schema.GroupVersionKind) bool {
	of, err := apiutil.GVKForObject(c.Object(), p.Scheme)
	return err == nil && of == gvk
}

func (p *Planner) kindOf(gvk schema.GroupVersionKind) int {
	return slices.IndexFunc(p.Kinds, func(k admission.Kind) bool { return k.GVK == gvk })
}

// decide asks the controllers of a kind: the one that decides most, then those that add to it, and the first once more,
// since it sums up what the others say.
func (p *Planner) decide(ctx context.Context, world *engine.World, a *planned) error {
	controllers, objects, err := p.concerned(a)
	if err != nil || len(controllers) == 0 {
		return err
	}
	a.decided = true
	made := make([]engine.Decision, len(controllers))
	for i, c := range controllers {
		if made[i], err = c.Decide(ctx, objects[i], world); err != nil {
			return err
		}
		if made[i].DeleteSelf != nil {
			a.Decision = made[i]
			return nil
		}
	}
	if a.Decision, err = engine.Together(objects[0], controllers, made); err != nil || len(made) == 1 {
		return err
	}
	told, err := p.saying(objects[0], a.Status)
	if err != nil {
		return err
	}
	if made[0], err = controllers[0].Decide(ctx, told, world); err != nil {
		return err
	}
	a.Decision, err = engine.Together(objects[0], controllers, made)
	return err
}

// concerned are the controllers that look after an object, in their order, and the object as each of them reads it.
func (p *Planner) concerned(a *planned) (controllers []engine.Controller, objects []client.Object, err error) {
	first := slices.SortedStableFunc(slices.Values(p.Controllers), func(a, b engine.Controller) int { return adds(a) - adds(b) })
	for _, c := range first {
		obj, err := p.asReadBy(c, a)
		if err != nil {
			return nil, nil, err
		}
		spec := c.Spec()
		switch {
		case obj == nil, spec.HomeName != "" && spec.HomeName != obj.GetName():
		case spec.Select != nil && !spec.Select.Matches(labels.Set(obj.GetLabels())):
		case adds(c) == 0 && len(controllers) > 0, adds(c) > 0 && !spec.Status.Concerns(obj):
		default:
			controllers, objects = append(controllers, c), append(objects, obj)
		}
	}
	return controllers, objects, nil
}

// adds is 1 for a controller that only has a part of the status.
func adds(c engine.Controller) int {
	if c.Spec().Status == nil {
		return 0
	}
	return 1
}

// saying is an object with another status.
func (p *Planner) saying(obj client.Object, status map[string]any) (client.Object, error) {
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	body["status"] = status
	out := obj.DeepCopyObject().(client.Object)
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(body, out)
}

// asReadBy is an object in the version that a controller reads, to which the API server would convert it; nil if the
// controller does not look after it.
func (p *Planner) asReadBy(c engine.Controller, a *planned) (client.Object, error) {
	if p.looksAfter(c, a.gvk) {
		return a.object, nil
	}
	of, err := apiutil.GVKForObject(c.Object(), p.Scheme)
	if err != nil || of.GroupKind() != a.gvk.GroupKind() {
		return nil, err
	}
	made, err := p.Scheme.New(of)
	if err != nil {
		return nil, err
	}
	hub, stored := made.(conversion.Hub)
	former, converts := a.object.(conversion.Convertible)
	if !stored || !converts {
		return nil, nil
	}
	if err := former.ConvertTo(hub); err != nil {
		return nil, err
	}
	obj, _ := made.(client.Object)
	return obj, nil
}

// admit does what the API server and our webhooks do with a new object, in
// their order. Objects of other kinds are checked as far as they are known; obj
// is nil for those that no controller looks after.
func (p *Planner) admit(ctx context.Context, m *manifest) (client.Object, []string, error) {
	i := p.kindOf(m.GroupVersionKind())
	if i < 0 {
		obj, err := p.admitForeign(m)
		return obj, nil, err
	}
	kind := p.Kinds[i]
	if err := p.place(m); err != nil {
		return nil, nil, err
	}
	if err := p.Schemas.Prepare(m.Unstructured); err != nil {
		return nil, nil, err
	}
	obj := kind.New()
	strict := admission.Strict(m.raw, obj) // said after the schema had its word
	if strict == nil && kind.Default != nil {
		if err := fillIn(ctx, kind, m, obj); err != nil {
			return nil, nil, err
		}
	}
	if err := p.Schemas.Validate(ctx, m.Unstructured, nil); err != nil {
		return nil, nil, err
	}
	if strict != nil {
		return nil, nil, strict
	}
	if err := fromMap(m, obj); err != nil {
		return nil, nil, err
	}
	if kind.Validate == nil {
		return obj, nil, nil
	}
	warnings, err := kind.Validate(ctx, nil, obj)
	if err != nil {
		return nil, nil, kind.Refusal(obj.GetName(), err)
	}
	return obj, warnings, nil
}

// fillIn is the mutating webhook.
func fillIn(ctx context.Context, kind admission.Kind, m *manifest, obj client.Object) error {
	if err := fromMap(m, obj); err != nil {
		return err
	}
	if err := kind.Default(ctx, obj); err != nil {
		return err
	}
	return toMap(obj, m)
}

// admitForeign checks objects of Kubernetes itself against their types; what is
// not known is taken as it is.
func (p *Planner) admitForeign(m *manifest) (client.Object, error) {
	made, err := p.Scheme.New(m.GroupVersionKind())
	if runtime.IsNotRegisteredError(err) {
		if p.ours(m.GroupVersionKind().Group) {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("no kind %q is registered for version %q; check apiVersion and kind", m.GetKind(), m.GetAPIVersion()))
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	obj, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s cannot be planned; name the objects themselves", m.GetKind())
	}
	if m.GetNamespace() == "" && namespaced(m.GroupVersionKind()) {
		m.SetNamespace(p.Namespace)
	}
	if err := admission.Strict(m.raw, obj); err != nil || !p.attended(m.GroupVersionKind()) {
		return nil, err
	}
	return obj, fromMap(m, obj)
}

// attended tells whether a controller looks after a kind.
func (p *Planner) attended(gvk schema.GroupVersionKind) bool {
	return slices.ContainsFunc(p.Controllers, func(c engine.Controller) bool { return p.looksAfter(c, gvk) })
}

func (p *Planner) ours(group string) bool {
	return slices.ContainsFunc(p.Kinds, func(k admission.Kind) bool { return k.GVK.Group == group })
}

// place gives a namespaced object a namespace, as kubectl does.
func (p *Planner) place(m *manifest) error {
	scoped, err := p.Schemas.Namespaced(m.GroupVersionKind())
	if err != nil {
		return err
	}
	if scoped && m.GetNamespace() == "" {
		m.SetNamespace(p.Namespace)
	}
	if !scoped && m.GetNamespace() != "" {
		return errors.New("metadata.namespace: this kind is cluster-scoped; remove the namespace")
	}
	if m.GetName() == "" && m.GetGenerateName() == "" {
		return errors.New("metadata.name: Required value: name or generateName is required")
	}
	return nil
}

// clusterScoped are the kinds of Kubernetes without a namespace that people put
// next to ours.
var clusterScoped = []string{"Namespace", "GatewayClass", "Node", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "StorageClass",
	"CustomResourceDefinition", "PriorityClass", "IngressClass", "RuntimeClass"}

func namespaced(gvk schema.GroupVersionKind) bool { return !slices.Contains(clusterScoped, gvk.Kind) }

func fromMap(m *manifest, obj client.Object) error {
	raw, err := json.Marshal(m.Object)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, obj)
}

func toMap(obj client.Object, m *manifest) error {
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	gvk := m.GroupVersionKind()
	m.Object = body
	m.SetGroupVersionKind(gvk)
	return nil
}
