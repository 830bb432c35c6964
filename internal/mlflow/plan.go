// SPDX-License-Identifier: Apache-2.0

package mlflow

import (
	"cmp"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/mlflow/migrate"
	"github.com/modelplane/modelplane/internal/mlflow/render"
)

// planner decides about one server.
type planner struct {
	chart *render.Chart
	// version that the database is brought to.
	version string
	mlflow  *mlflowv1.MLflow
	spec    *mlflowv1.MLflowSpec
	seen    *Seen
}

// Stages: what the server needs, the server, and what leads to it. A route that cannot be made must not keep the server
// from being made, nor must a volume that cannot grow.
const (
	stageNeeds = iota
	stageServer
	stageAround
)

var stages = map[string]int{
	"Deployment": stageServer, "Service": stageServer, "PersistentVolumeClaim": stageServer, "CronJob": stageServer,
	"HTTPRoute": stageAround, "ConsoleLink": stageAround, "ServiceMonitor": stageAround,
}

func (p *planner) plan() engine.Plan {
	if closed := p.closed(); closed != nil {
		return *closed
	}
	if problem := p.refusal(); problem != nil {
		return p.hold(problem)
	}
	objects, err := p.objects()
	if err != nil {
		return p.hold(engine.MustChange(reasonRenderFailed, "The objects of the server cannot be made from the spec: %s. Correct the spec.", err.Error()))
	}
	server, children, err := p.children(objects)
	if err != nil {
		return p.hold(engine.MustChange(reasonRenderFailed, "The Deployment of the server cannot be made from the spec: %s. Correct the spec.", err.Error()))
	}
	next := migrate.Next(migrate.Observed{
		MLflow: p.mlflow, Supported: p.version, Deployment: p.seen.Deployment, Template: p.seen.Template,
		Jobs: p.seen.Jobs, Pods: p.seen.Pods, CronJobs: p.seen.CronJobs, Now: p.seen.Now,
	}, server)
	next.Server.Stage = stageServer
	children = append(children, next.Server)
	for _, job := range next.Jobs {
		job.Stage = stageServer
		children = append(children, job)
	}
	if next.Suspend {
		suspend(children)
	}
	return engine.Plan{
		Children: children, Status: p.status(next), Problem: next.Problem, Events: next.Events, RemoveAnnotations: next.Done,
		RequeueAfter: p.lookAgain(next.RequeueAfter),
	}
}

// refusal is why nothing can be made of the object, nil if something can.
func (p *planner) refusal() *engine.Problem {
	if ref := p.spec.CABundleConfigMap; ref != nil && !p.seen.HasCA {
		return engine.WaitFor(reasonCABundle, "The ConfigMap %s/%s that spec.caBundleConfigMap names does not exist. Create it, or correct the name.",
			p.seen.Settings.Namespace, ref.Name)
	}
	if p.image() == "" {
		return engine.MustChange("ImageMissing", "Neither the object nor the platform says which image to run. Set spec.image.image, or mlflow.image in the values of the chart.")
	}
	if errs := examineStorage(p.spec, p.address); len(errs) > 0 && !p.ranLikeThis() {
		return engine.MustChange("StorageRefused", "The server cannot be run as asked: %s.", told(errs[0]))
	}
	return nil
}

// told is a refusal without the address of a database, which may have a password in it.
func told(err *field.Error) string { return fmt.Sprintf("%s: %s", err.Field, err.Detail) }

// hold leaves what runs alone and says what is in the way.
func (p *planner) hold(problem *engine.Problem) engine.Plan {
	return engine.Plan{KeepChildren: true, Children: p.rescued(), Problem: problem, Status: p.heldStatus(problem), RequeueAfter: p.lookAgain(0)}
}

// objects are those of the chart.
func (p *planner) objects() ([]*unstructured.Unstructured, error) {
	values, err := p.values()
	if err != nil {
		return nil, err
	}
	return p.chart.Objects(p.seen.Settings.Namespace, values)
}

// children are what the objects become, but for the Deployment, which may have to wait for the database.
func (p *planner) children(objects []*unstructured.Unstructured) (*appsv1.Deployment, []engine.Child, error) {
	server := &appsv1.Deployment{}
	var children []engine.Child
	if p.spec.Storage == nil {
		children = append(p.rescued(), p.unwanted()...)
	}
	if p.seen.TLS.Own != nil {
		children = append(children, engine.Child{Object: p.secret(), Stage: stageNeeds})
	}
	for _, u := range objects {
		if u.GetKind() == "Deployment" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, server); err != nil {
				return nil, nil, err
			}
			continue
		}
		data := u.GetKind() == "PersistentVolumeClaim" && p.keepsData()
		children = append(children, engine.Child{
			Object: u, Stage: stages[u.GetKind()], Retain: data, Adopt: data, // one that was restored from a backup has no owner
		})
	}
	return server, children, nil
}

// suspend keeps CronJobs away from a database that is in work.
func suspend(children []engine.Child) {
	for _, c := range children {
		if u, ok := c.Object.(*unstructured.Unstructured); ok && u.GetKind() == "CronJob" {
			u.Object["spec"].(map[string]any)["suspend"] = true
		}
	}
}

// lookAgain is when the next step is due: of a migration, or of the certificate.
func (p *planner) lookAgain(migration time.Duration) time.Duration {
	if p.seen.TLS.RenewAt.IsZero() {
		return migration
	}
	renewal := max(p.seen.TLS.RenewAt.Sub(p.seen.Now), time.Second)
	return min(cmp.Or(migration, renewal), renewal)
}

// ownLabels are those of everything that belongs to the server.
func ownLabels() map[string]string {
	return map[string]string{"app": name, "component": name}
}
