// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelmesh/model"
	"github.com/modelplane/modelplane/internal/modelmesh/settings"
)

// Plan implements engine.Kind.
func (k ofNamespace) Plan(rt *v1alpha1.ServingRuntime, seen Seen) engine.Plan {
	plan := planFor(viewOf(rt), &seen)
	plan.NoFinalizer = !seen.Heir
	if plan.Problem == nil && Runs(&rt.Spec) && len(seen.Places) == 0 {
		plan.Problem = engine.WaitFor("NamespaceNotEnabled",
			"Multi-model runtimes do not run in namespace %s. Label the namespace with %s=true to have this one there.", rt.Namespace, settings.LabelEnabled)
	}
	return plan
}

// Teardown implements engine.Teardown: what runs is left to the runtime of the cluster that had the place before.
func (k ofNamespace) Teardown(rt *v1alpha1.ServingRuntime, seen Seen) engine.Ending {
	for i := range seen.Places {
		p := newPlanner(viewOf(rt), &seen, &seen.Places[i])
		if seen.Heir && seen.Problem() == nil && p.place.heldBy(kindNamespaced) == rt.Name {
			plan := engine.Plan{}
			p.leave(&plan, true)
			return engine.Ending{Plan: plan}
		}
	}
	return engine.Ending{Finished: true}
}

// Plan implements engine.Kind.
func (k ofCluster) Plan(rt *v1alpha1.ClusterServingRuntime, seen Seen) engine.Plan {
	return planFor(viewOf(rt), &seen)
}

// planFor decides about a runtime in all its places. What is wrong with the runtime itself, or with the configuration,
// leaves what runs as it is.
func planFor(rt *view, seen *Seen) engine.Plan {
	if !Runs(rt.spec) {
		return engine.Plan{}
	}
	if p := seen.Problem(); p != nil {
		return engine.Plan{KeepChildren: true, Problem: p}
	}
	if p := wrong(rt, seen.Settings); p != nil {
		return engine.Plan{KeepChildren: true, Problem: p}
	}
	plan := engine.Plan{}
	for i := range seen.Places {
		newPlanner(rt, seen, &seen.Places[i]).plan(&plan)
	}
	return plan
}

// wrong is what admission would say of a runtime that was stored before it was asked.
func wrong(rt *view, s *settings.Settings) *engine.Problem {
	found := examine(rt, s.BuiltInServerTypes)
	_, err := found.Result()
	if err == nil {
		return nil
	}
	return engine.MustChange("InvalidRuntime", "The %s cannot run: %s. Correct it; what runs of it is left as it is.", rt.kind, err)
}

// planner decides about a runtime in one namespace.
type planner struct {
	runtime *view
	spec    *v1alpha1.ServingRuntimeSpec
	config  *settings.Settings
	seen    *Seen
	place   *Place
	// management and data are where the runtime is told about models, and where it is asked.
	management, data endpoint
	labels           []string
}

func newPlanner(rt *view, seen *Seen, place *Place) *planner {
	p := &planner{runtime: rt, spec: rt.spec, config: seen.Settings, seen: seen, place: place}
	p.management, _ = parseEndpoint(rt.spec.GrpcMultiModelManagementEndpoint) // examined before
	p.data, _ = parseEndpoint(rt.spec.GrpcDataEndpoint)
	if !p.management.given() {
		p.management = endpoint{port: defaultManagement}
	}
	p.labels = model.Labels(rt.name, rt.spec, seen.RESTProxy.Enabled)
	return p
}

// other is the other kind of runtimes, from which a place may be taken over.
func (p *planner) other() string {
	if p.runtime.kind == kindCluster {
		return kindNamespaced
	}
	return kindCluster
}

func (p *planner) name() string { return p.config.InferenceServiceName + "-" + p.runtime.name }

// leave plans that what runs stays as it is, with its autoscaler or without.
func (p *planner) leave(plan *engine.Plan, scaled bool) {
	meta := metav1.ObjectMeta{Namespace: p.place.Namespace, Name: p.name()}
	plan.Children = append(plan.Children, engine.Child{Unmanaged: true, Object: &appsv1.Deployment{ObjectMeta: meta}})
	if scaled {
		plan.Children = append(plan.Children, engine.Child{Unmanaged: true, Object: &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta}})
	}
}

// plan adds the place to what is planned elsewhere.
func (p *planner) plan(plan *engine.Plan) {
	if p.place.Taken { // the other one takes it over, so that its pods need not be made anew
		p.leave(plan, p.place.Scaled)
		return
	}
	if p.config.TLS.SecretName != "" && !p.place.TLS {
		p.leave(plan, true)
		add(plan, engine.WaitFor("TLSSecretMissing",
			"Secret %s does not exist in namespace %s, but the configuration (tls.secretName) names it. Create it; until then the pods there are left as they are.",
			p.config.TLS.SecretName, p.place.Namespace))
		return
	}
	if !p.seen.Etcd && !p.place.Etcd { // pods that run do not mind, and new ones wait for it by themselves
		add(plan, engine.WaitFor("EtcdSecretMissing",
			"Secret %s/%s does not exist, so that the pods in namespace %s cannot start. Create it with the key etcd_connection.",
			p.seen.Home, p.seen.EtcdSecret, p.place.Namespace))
	}
	count := p.scale()
	d := p.deployment()
	d.Spec.Replicas = &count.replicas
	if count.idleSince != "" {
		d.Annotations = map[string]string{annotationIdle: count.idleSince}
	}
	if held := p.hold(d); held {
		plan.Events = append(plan.Events, engine.Event{Reason: "PodsKept", Message: fmt.Sprintf(
			"The pods in namespace %s were made by another controller, and run on as they are. They are made anew with the next change of the runtime or of its "+
				"configuration; to have that now, set the annotation %s to \"false\".", p.place.Namespace, AnnotationKeepPods)})
	}
	child := engine.Child{Object: d}
	if p.place.heldBy(p.other()) == p.runtime.name {
		// The autoscaler changes hands first: who gives the place up goes when it has no Deployment any more, and takes along
		// what it still has.
		child.Adopt, child.Stage, d.UID = true, 2, p.place.Whole.UID
	}
	if count.initial {
		child.Initial = []string{"spec.replicas"}
	}
	plan.Children = append(plan.Children, child)
	if p.autoscaled() && count.replicas > 0 {
		plan.Children = append(plan.Children, engine.Child{Object: p.autoscaler(), Adopt: true, Stage: 1})
	}
	plan.RequeueAfter = sooner(plan.RequeueAfter, count.again)
}

// add tells of a problem in one place, unless there is one already.
func add(plan *engine.Plan, problem *engine.Problem) {
	if plan.Problem == nil {
		plan.Problem = problem
	}
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
