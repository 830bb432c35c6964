// SPDX-License-Identifier: Apache-2.0

package graphs_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// existing is a router as KServe's controller writes it.
const existing = `
metadata:
  name: g
  labels: {serving.kserve.io/inferencegraph: g, app: isvc.g, team: a}
spec:
  selector: {matchLabels: {app: isvc.g}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}}
  revisionHistoryLimit: 10
  progressDeadlineSeconds: 600
  template:
    metadata:
      name: g
      labels: {serving.kserve.io/inferencegraph: g, app: isvc.g, team: a}
    spec:
      automountServiceAccountToken: false
      dnsPolicy: ClusterFirst
      restartPolicy: Always
      schedulerName: default-scheduler
      terminationGracePeriodSeconds: 30
      securityContext: {}
      containers:
        - name: g
          image: kserve/router:latest
          imagePullPolicy: IfNotPresent
          args:
            - --graph-json
            - '{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"http://elsewhere.example.com"}]}},"resources":{}}'
          resources:
            requests: {cpu: 100m, memory: 100Mi}
            limits: {cpu: "1", memory: 1Gi}
          readinessProbe:
            httpGet: {path: /readyz, port: 8080, scheme: HTTP}
            initialDelaySeconds: 5
            timeoutSeconds: 2
            periodSeconds: 5
            successThreshold: 1
            failureThreshold: 3
          securityContext:
            privileged: false
            runAsNonRoot: true
            readOnlyRootFilesystem: true
            allowPrivilegeEscalation: false
            capabilities: {drop: [ALL]}
          terminationMessagePath: /dev/termination-log
          terminationMessagePolicy: File
`

// TestTakenOver: a router that exists becomes ours and is not restarted.
func TestTakenOver(t *testing.T) {
	b := bench{servingtest.New(t)}
	g := b.graph("g", "")
	g.Labels = map[string]string{"team": "a"}
	g.Spec.Nodes["root"].Steps[0].ServiceURL = "http://elsewhere.example.com"
	b.Create(t, g)
	d := &appsv1.Deployment{}
	if err := yaml.UnmarshalStrict([]byte(existing), d); err != nil {
		t.Fatal(err)
	}
	d.Namespace, d.Spec.Template.Namespace = b.NS, b.NS
	if err := controllerutil.SetControllerReference(g, d, servingtest.Scheme); err != nil {
		t.Fatal(err)
	}
	if err := b.C.Create(t.Context(), d, client.FieldOwner("manager")); err != nil {
		t.Fatal(err)
	}
	b.rollOut(t, "g") // also when only annotations change
	before := b.deployment(t, "g")
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	b.waitFor(t, "g", corev1.ConditionTrue, "")
	after := b.deployment(t, "g")
	if after.UID != before.UID || after.Labels[engine.LabelOwner] != string(g.UID) {
		t.Errorf("the router was not taken over: %+v", after.ObjectMeta)
	}
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
		t.Errorf("the router was changed: %s", diff)
	}
	servingtest.Quiet(t, counter, "after the take-over")
}

// TestATeamsServiceIsLeftAlone: a graph that is called like something else in its
// namespace neither re-points nor later removes it.
func TestATeamsServiceIsLeftAlone(t *testing.T) {
	b := bench{servingtest.New(t)}
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "db"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "postgres"}, Ports: []corev1.ServicePort{{Port: 5432}}}}
	b.Create(t, theirs)
	b.Manage(t, b.Manager)
	g := b.graph("db", "")
	g.Spec.Nodes["root"].Steps[0].ServiceURL = "http://elsewhere.example.com"
	b.Create(t, g)
	testkit.Eventually(t, servingtest.Patience, "the graph to say that the name is taken", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
			return err
		}
		for _, c := range g.Status.Conditions {
			if c.Type == "Ready" && c.Reason == "NameTaken" {
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v", g.Status.Conditions)
	})
	if err := b.C.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	b.Gone(t, &v1alpha1.InferenceGraph{}, "db")
	after := &corev1.Service{}
	b.Exists(t, after, "db")
	if after.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("the Service was touched: %+v", after)
	}
}
