// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/cli/explain"
	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

// bench is a cluster with a manager, and the command.
type bench struct {
	*servingtest.Bench
	t *testing.T
	// kubeconfig of the person who asks.
	kubeconfig string
	stop       func() // ends the manager
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{Bench: servingtest.New(t), t: t}
	b.stop = b.Manage(t, b.Manager)
	t.Setenv("LC_ALL", "C")
	b.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "default"}})
	b.kubeconfig = b.person("reader", rbacv1.PolicyRule{
		APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"},
	})
	return b
}

// person is somebody who may do no more than the rule says, in one namespace.
func (b *bench) person(name string, rule rbacv1.PolicyRule) (kubeconfig string) {
	b.t.Helper()
	cfg := b.ServiceAccountConfig(b.t, b.NS, name)
	b.Create(b.t,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}, Rules: []rbacv1.PolicyRule{rule}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: b.NS, Name: name}},
		})
	return b.KubeconfigFor(b.t, cfg)
}

// explain is the command as a person calls it.
func (b *bench) explain(args ...string) (code int, text string) {
	b.t.Helper()
	c := cli.NewExplainCommand(func() (*cli.Known, error) {
		all, err := domains.All()
		if err != nil {
			return nil, err
		}
		known := &cli.Known{Scheme: servingtest.Scheme, About: domains.About()}
		for _, d := range all {
			known.Controllers = append(known.Controllers, d.Controllers...)
		}
		return known, nil
	})
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append(args, "--kubeconfig", b.kubeconfig, "-n", b.NS))
	err := c.ExecuteContext(b.t.Context())
	var verdict *cli.Verdict
	if err != nil && !errors.As(err, &verdict) {
		fmt.Fprintln(&out, err)
	}
	var coded interface{ ExitCode() int }
	switch {
	case errors.As(err, &coded):
		code = coded.ExitCode()
	case err != nil:
		code = command.ExitFailed
	}
	return code, out.String()
}

// says fails the test unless all of it is said, with the exit code.
func (b *bench) says(code int, args []string, want ...string) {
	b.t.Helper()
	got, text := b.explain(args...)
	if got != code {
		b.t.Errorf("explain %v: exit code %d, want %d", args, got, code)
	}
	for _, w := range want {
		if w = strings.ReplaceAll(w, "NS", b.NS); !strings.Contains(text, w) {
			b.t.Errorf("explain %v does not say %q", args, w)
		}
	}
	b.t.Logf("explain %v:\n%s", args, text)
}

// unpullable plays the Deployment controller and the kubelet: there is a pod,
// and it cannot get its image.
func (b *bench) unpullable(deployment string) {
	b.t.Helper()
	d := &appsv1.Deployment{}
	b.Exists(b.t, d, deployment)
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, UnavailableReplicas: 1}
	if err := b.C.Status().Update(b.t.Context(), d); err != nil {
		b.t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: deployment + "-7d9f4-x2x4v", Labels: d.Spec.Template.Labels}}
	pod.Spec.AutomountServiceAccountToken = ptr.To(false)
	pod.Spec.Containers = []corev1.Container{{Name: "kserve-container", Image: "server:1", Env: []corev1.EnvVar{{Name: "TOKEN", Value: "hush-hush"}}}}
	b.Create(b.t, pod)
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodPending,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", LastTransitionTime: metav1.Now()},
		},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "kserve-container", Image: "server:1", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: `Back-off pulling image "server:1": ErrImagePull: not found`},
		}}},
	}
	if err := b.C.Status().Update(b.t.Context(), pod); err != nil {
		b.t.Fatal(err)
	}
	b.Create(b.t, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: b.NS, Name: pod.Name + ".1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: b.NS, Name: pod.Name, UID: pod.UID},
		Type:           corev1.EventTypeWarning, Reason: "Failed", Message: "Error: ImagePullBackOff", Count: 3, LastTimestamp: metav1.Now(),
	})
}

func TestExplainOnServer(t *testing.T) {
	b := newBench(t)
	b.Create(t, b.Service("iris", "sklearn"), b.Service("wine", "sklearn"), b.Service("lily", "nonesuch"))
	b.RollOut(t, "wine-predictor")
	b.unpullable("iris-predictor")
	b.Status(t, "wine", "Ready", corev1.ConditionTrue, "")
	b.Status(t, "iris", "Ready", corev1.ConditionFalse, "ImagePullBackOff")
	b.Status(t, "lily", "Ready", corev1.ConditionFalse, "NoSupportingRuntime")

	b.says(0, []string{"inferenceservice/wine"}, "InferenceService NS/wine  + ready for", "url      http://wine-", "runtime  ServingRuntime serve-sklearn",
		"Deployment wine-predictor", "1 of 1 pods ready", "Service wine-predictor", "HorizontalPodAutoscaler wine-predictor", "Ingress wine")
	b.says(2, []string{"isvc", "iris"}, "x not ready for", "x ImagePullBackOff", "`- Pod iris-predictor-7d9f4-x2x4v",
		"(3 times)  Pod iris-predictor-7d9f4-x2x4v  Failed", "PredictorReady is False (ImagePullBackOff), in pod iris-predictor-7d9f4-x2x4v",
		"kubectl --kubeconfig "+b.kubeconfig+" -n NS describe pod iris-predictor-7d9f4-x2x4v")
	b.says(2, []string{"inferenceservices.serving.kserve.io/lily"}, "No runtime serves format nonesuch", "-n NS get servingruntimes", "get clusterservingruntimes")
	b.says(1, []string{"isvc/irsi"}, "there is no inferenceservice irsi in namespace NS: did you mean iris?")
	b.says(1, []string{"deployment/iris-predictor"}, `"deployment" cannot be explained: choose from inferenceservice`)
	if _, text := b.explain("isvc/iris"); strings.Contains(text, "hush-hush") || strings.Contains(text, "Not looked at") {
		t.Errorf("said too much, or looked at too little:\n%s", text)
	}
}

// TestExplainWithoutManager: what the conditions say of an earlier generation is not taken for the truth.
func TestExplainWithoutManager(t *testing.T) {
	b := newBench(t)
	wine := b.Service("wine", "sklearn")
	b.Create(t, wine)
	b.RollOut(t, "wine-predictor")
	b.Status(t, "wine", "Ready", corev1.ConditionTrue, "")
	b.stop()
	b.Change(t, wine, func() { wine.Spec.Predictor.MinReplicas = ptr.To(int32(2)) })
	b.Create(t, b.Service("lily", "sklearn"))
	b.says(2, []string{"isvc/wine"}, "generation 1 of 2: the manager has not looked at your last change yet", "Of generation 1 it was said: Ready is True.",
		"get deployments -A -l app.kubernetes.io/part-of=modelplane")
	b.says(2, []string{"isvc/lily"}, "No manager has looked at it yet.")
}

// TestExplainJSONOnServer: programs get the same.
func TestExplainJSONOnServer(t *testing.T) {
	b := newBench(t)
	b.Create(t, b.Service("iris", "sklearn"))
	b.unpullable("iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionFalse, "ImagePullBackOff")
	code, text := b.explain("isvc/iris", "-o", "json")
	r := &explain.Report{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatal(err)
	}
	if code != 2 || r.Ready || r.Cause.Pod != "iris-predictor-7d9f4-x2x4v" || r.ObservedGeneration != r.Generation || len(r.Children) == 0 {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// TestExplainWithLittlePermission: what may not be read is named, and the rest is said.
func TestExplainWithLittlePermission(t *testing.T) {
	b := newBench(t)
	b.Create(t, b.Service("iris", "sklearn"))
	b.unpullable("iris-predictor")
	b.Status(t, "iris", "Ready", corev1.ConditionFalse, "ImagePullBackOff")
	b.kubeconfig = b.person("little", rbacv1.PolicyRule{
		APIGroups: []string{"serving.kserve.io"}, Resources: []string{"inferenceservices"}, Verbs: []string{"get"},
	})
	b.says(2, []string{"isvc/iris"}, "PredictorReady is False (ImagePullBackOff)", "Not looked at", "deployments.apps: you may not read them",
		"events: you may not read them", "-n NS describe inferenceservice iris")
	b.says(1, []string{"isvc/irsi"}, "there is no inferenceservice irsi in namespace NS")
	b.kubeconfig = b.person("nothing", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
	b.says(1, []string{"isvc/iris"}, "you may not read InferenceService NS/iris")
}
