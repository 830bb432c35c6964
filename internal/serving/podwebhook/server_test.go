// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnAServer puts the webhook behind a real API server, with the permissions
// that its markers ask for and no others.
func TestOnAServer(t *testing.T) {
	cluster := testkit.Start(t)
	defs, err := charts.CRDs()
	must(t, err)
	var needed []*apiextensionsv1.CustomResourceDefinition
	for _, def := range defs {
		if k := def.Spec.Names.Kind; k == "ClusterStorageContainer" || k == "InferenceService" {
			needed = append(needed, def)
		}
	}
	cluster.InstallCRDs(t, needed...)
	c := newClient(t, cluster.Config())
	requests := testkit.NewCounter()
	url := serve(t, cluster, requests)
	namespace := cluster.Namespace(t)
	create := func(obj client.Object) {
		t.Helper()
		obj.SetNamespace(namespace)
		must(t, c.Create(t.Context(), obj))
	}
	create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s3"}, Data: map[string][]byte{"awsSecretAccessKey": []byte(confidential)}})
	create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Secrets: []corev1.ObjectReference{{Name: "s3"}}})
	store := &v1alpha1.ClusterStorageContainer{ObjectMeta: metav1.ObjectMeta{GenerateName: "pods-test-"}, Spec: v1alpha1.StorageContainerSpec{
		Container:           corev1.Container{Name: "mine", Image: "mine:1"},
		SupportedUriFormats: []v1alpha1.SupportedUriFormat{{Prefix: "s3://mine/"}},
	}}
	must(t, c.Create(t.Context(), store))
	t.Cleanup(func() { must(t, c.Delete(context.Background(), store)) })
	path := "/logs"
	create(&v1beta1.InferenceService{ObjectMeta: metav1.ObjectMeta{Name: "iris"}, Spec: v1beta1.InferenceServiceSpec{Predictor: v1beta1.PredictorSpec{
		ComponentExtensionSpec: v1beta1.ComponentExtensionSpec{Logger: &v1beta1.LoggerSpec{
			Mode: v1beta1.LogAll, Storage: &v1beta1.LoggerStorageSpec{StorageSpec: v1beta1.StorageSpec{Path: &path}},
		}},
	}}})

	before := requests.Snapshot()
	completed(t, c, namespace)
	if n := requests.Since(before).Of("get", sets); n != 0 {
		t.Errorf("%d requests to know a ReplicaSet that is followed", n)
	}
	excluded(t, c, namespace)
	refused(t, c, namespace)
	untold(t, c, url, namespace)
	before = requests.Snapshot()
	unfollowed(t, c, namespace)
	if n := requests.Since(before).Of("get", sets); n != 3 {
		t.Errorf("%d requests to know three ReplicaSets that are not followed", n)
	}
	gone(t, c, url, namespace)
}

const sets = "apps/replicasets"

// madeBySet gives a pod an owner that has it as its template.
func madeBySet(t *testing.T, c client.Client, namespace string, pod *corev1.Pod, unlike ...func(*appsv1.ReplicaSet)) *corev1.Pod {
	t.Helper()
	pod.GenerateName, pod.Namespace = "iris-", namespace
	pod.OwnerReferences = nil
	pod.Labels["app"] = "iris"
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "iris-", Namespace: namespace, Labels: pod.Labels},
		Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "iris"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		},
	}
	for _, change := range unlike {
		change(set)
	}
	must(t, c.Create(t.Context(), set))
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	return pod
}

// completed looks at a pod as it comes back from the API server.
func completed(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	pod := podOf("s3://mine/iris")
	pod.Annotations[v1beta1.AnnotationLogger] = "true"
	pod = madeBySet(t, c, namespace, pod)
	must(t, c.Create(t.Context(), pod))
	if len(pod.Spec.InitContainers) != 1 || pod.Spec.InitContainers[0].Image != "mine:1" || pod.Spec.InitContainers[0].Args[0] != "s3://mine/iris" {
		t.Fatalf("the model is not brought by the cluster's own container: %+v", pod.Spec.InitContainers)
	}
	if env := pod.Spec.InitContainers[0].Env[0]; env.Name != "AWS_ACCESS_KEY_ID" || env.ValueFrom.SecretKeyRef.Name != "s3" {
		t.Errorf("the credentials are missing: %+v", env)
	}
	if len(pod.Spec.Containers) != 2 || !strings.Contains(strings.Join(pod.Spec.Containers[1].Args, " "), "--namespace "+namespace+" ") ||
		!strings.Contains(strings.Join(pod.Spec.Containers[1].Args, " "), "--log-store-path /logs") {
		t.Errorf("the agent does not log as the service says: %+v", pod.Spec.Containers)
	}
	if pod.Annotations[v1beta1.AnnotationEnableMetricAggregation] != "false" {
		t.Errorf("nothing is said of metrics: %v", pod.Annotations)
	}
}

// excluded makes pods that are none of the webhook's business.
func excluded(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	foreign := podOf("s3://mine/iris")
	foreign.GenerateName, foreign.Namespace, foreign.Labels = "other-", namespace, nil
	system := podOf("s3://mine/iris")
	system.GenerateName, system.Namespace = "iris-", metav1.NamespaceSystem
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "pods-test-", Labels: map[string]string{"control-plane": "any"}}}
	must(t, c.Create(t.Context(), own))
	t.Cleanup(func() { must(t, c.Delete(context.Background(), own)) })
	ours := podOf("s3://mine/iris")
	ours.GenerateName, ours.Namespace = "iris-", own.Name
	for _, pod := range []*corev1.Pod{foreign, system, ours} {
		must(t, c.Create(t.Context(), pod, client.DryRunAll))
		if len(pod.Spec.InitContainers) > 0 {
			t.Errorf("a pod in %s with labels %v was changed", pod.Namespace, pod.Labels)
		}
	}
}

// refused reads what a person gets to read.
func refused(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	pod := podOf("s3://mine/iris")
	pod.Annotations[v1beta1.AnnotationStorageSecretName] = "gone"
	pod = madeBySet(t, c, namespace, pod)
	err := c.Create(t.Context(), pod, client.DryRunAll)
	want := "there is no Secret gone in namespace " + namespace + ", which annotation serving.kserve.io/storageSecretName names; create it, or remove the name"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

// untold asks the webhook as anybody can who reaches its port: whatever is claimed of a pod, the answer tells nothing of the
// namespace.
func untold(t *testing.T, c client.Client, url, namespace string) {
	t.Helper()
	genuine := madeBySet(t, c, namespace, podOf("s3://mine/iris"))
	empty := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "pods-test-"}}
	must(t, c.Create(t.Context(), empty))
	t.Cleanup(func() { must(t, c.Delete(context.Background(), empty)) })
	elsewhere := madeBySet(t, c, empty.Name, podOf("s3://mine/iris"))
	if got := ask(t, url, namespace, genuine); !strings.Contains(got, "storage-initializer") {
		t.Fatalf("a pod of a ReplicaSet: %s", got)
	}
	forged := map[string]func(*corev1.Pod){
		"no owner":                func(p *corev1.Pod) { p.OwnerReferences = nil },
		"no UID":                  func(p *corev1.Pod) { p.OwnerReferences[0].UID = "" },
		"a guessed UID":           func(p *corev1.Pod) { p.OwnerReferences[0].UID = "4711" },
		"a guessed name":          func(p *corev1.Pod) { p.OwnerReferences[0].Name = "iris" },
		"an owner elsewhere":      func(p *corev1.Pod) { p.OwnerReferences = elsewhere.OwnerReferences },
		"another kind of owner":   func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Job" },
		"another account":         func(p *corev1.Pod) { p.Spec.ServiceAccountName = "other" },
		"another Secret":          func(p *corev1.Pod) { p.Annotations[v1beta1.AnnotationStorageSecretName] = "s3" },
		"a Secret that is not":    func(p *corev1.Pod) { p.Annotations[v1beta1.AnnotationStorageSecretName] = "gone" },
		"another entry":           func(p *corev1.Pod) { p.Annotations[v1beta1.AnnotationStorageSpec] = "true" },
		"another service's pods":  func(p *corev1.Pod) { p.Labels[v1beta1.LabelInferenceService] = "other" },
		"an agent and no owner":   func(p *corev1.Pod) { p.OwnerReferences = nil; p.Annotations[v1beta1.AnnotationLogger] = "true" },
		"a puller and no owner":   func(p *corev1.Pod) { p.OwnerReferences = nil; p.Annotations[v1beta1.AnnotationAgent] = "true" },
		"a namespace that is not": func(p *corev1.Pod) { p.Namespace = "nowhere" },
	}
	answers := map[string][]string{}
	for name, forge := range forged {
		pod := genuine.DeepCopy()
		forge(pod)
		answer := ask(t, url, pod.Namespace, pod)
		answers[answer] = append(answers[answer], name)
	}
	if len(answers) != 1 {
		t.Errorf("answers differ by what there is:\n%s", strings.Join(slices.Collect(maps.Keys(answers)), "\n"))
	}
	for answer, names := range answers {
		if strings.Contains(answer, `"patch"`) || !strings.Contains(answer, "is none that a ReplicaSet") {
			t.Errorf("%v: %s", names, answer)
		}
	}
}

// unfollowed makes pods of ReplicaSets of which nothing is kept.
func unfollowed(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	for name, unlike := range map[string]func(*appsv1.ReplicaSet){
		"without the label":  func(set *appsv1.ReplicaSet) { set.Labels = nil },
		"of an old revision": func(set *appsv1.ReplicaSet) { set.Spec.Replicas = new(int32) },
		"with too much to keep": func(set *appsv1.ReplicaSet) {
			set.Spec.Template.Annotations = maps.Clone(set.Spec.Template.Annotations)
			set.Spec.Template.Annotations["large"] = strings.Repeat("x", mostKept)
		},
	} {
		pod := madeBySet(t, c, namespace, podOf("s3://mine/iris"), unlike)
		must(t, c.Create(t.Context(), pod, client.DryRunAll))
		if len(pod.Spec.InitContainers) != 1 {
			t.Errorf("a pod of a ReplicaSet %s is not completed", name)
		}
	}
}

// gone deletes a ReplicaSet, whose UID then proves nothing any more.
func gone(t *testing.T, c client.Client, url, namespace string) {
	t.Helper()
	pod := madeBySet(t, c, namespace, podOf("s3://mine/iris"))
	if got := ask(t, url, namespace, pod); !strings.Contains(got, "storage-initializer") {
		t.Fatalf("a pod of a ReplicaSet: %s", got)
	}
	must(t, c.Delete(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.OwnerReferences[0].Name}}))
	testkit.Eventually(t, 10*time.Second, "the ReplicaSet to be forgotten", func() error {
		if got := ask(t, url, namespace, pod); !strings.Contains(got, "is none that a ReplicaSet") {
			return errors.New(got)
		}
		return nil
	})
}

// ask sends a review to the webhook and returns the answer.
func ask(t *testing.T, url, namespace string, pod *corev1.Pod) string {
	t.Helper()
	raw, err := json.Marshal(pod)
	must(t, err)
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Create, Namespace: namespace, Object: runtime.RawExtension{Raw: raw},
			UserInfo: authenticationv1.UserInfo{Username: "system:serviceaccount:kube-system:replicaset-controller", Groups: []string{"system:masters"}},
		},
	})
	must(t, err)
	anybody := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	resp, err := anybody.Post(url, "application/json", bytes.NewReader(review))
	must(t, err)
	defer resp.Body.Close()
	var answer admissionv1.AdmissionReview
	must(t, json.NewDecoder(resp.Body).Decode(&answer))
	out, err := json.Marshal(answer.Response)
	must(t, err)
	return string(out) + string(answer.Response.Patch)
}

// TestResultsAreValidPods gives the pods of all golden cases to the API server.
func TestResultsAreValidPods(t *testing.T) {
	cluster := testkit.Start(t)
	c, namespace := newClient(t, cluster.Config()), cluster.Namespace(t)
	valid := 0
	for dir, decode := range map[string]func([]byte, *corev1.Pod) error{
		"testdata/mutate":            func(raw []byte, pod *corev1.Pod) error { return yaml.Unmarshal(raw, pod) },
		"../storage/testdata/inject": func(raw []byte, pod *corev1.Pod) error { return yaml.Unmarshal(raw, &pod.Spec) },
	} {
		for _, golden := range testkit.GoldenCases(t, dir) {
			if strings.HasPrefix(string(golden.Out), "error:") {
				continue
			}
			pod := &corev1.Pod{}
			must(t, decode(golden.Out, pod))
			complete(pod, namespace)
			if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Errorf("%s/%s is no pod that Kubernetes takes: %v", dir, golden.Name, err)
			}
			valid++
		}
	}
	if valid < 90 {
		t.Errorf("only %d cases were tried", valid)
	}
}

// complete fills in what the cases leave out because it does not matter to them.
func complete(pod *corev1.Pod, namespace string) {
	pod.Name, pod.Namespace = "pod", namespace
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Image == "" {
				list[i].Image = "image"
			}
		}
	}
	for _, c := range pod.Spec.Containers { // volumes that mounts of the server itself name
		for _, m := range c.VolumeMounts {
			found := false
			for _, v := range pod.Spec.Volumes {
				found = found || v.Name == m.Name
			}
			if !found {
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: m.Name})
			}
		}
	}
}

func newClient(t testing.TB, cfg *rest.Config) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme, v1alpha1.AddToScheme} {
		must(t, add(scheme))
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	must(t, err)
	return c
}

// limited is a configuration with the permissions that the markers ask for.
func limited(t *testing.T, cluster *testkit.Cluster) *rest.Config {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "pods-test-"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts", "secrets"}, Verbs: []string{"get"}},
		{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: []string{"get"}},
		{APIGroups: []string{v1beta1.Group}, Resources: []string{"clusterstoragecontainers"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{v1beta1.Group}, Resources: []string{"inferenceservices"}, Verbs: []string{"get"}},
	}}
	must(t, cluster.Client().Create(t.Context(), role))
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pods-test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "pods-test"}},
	}
	must(t, cluster.Client().Create(t.Context(), binding))
	t.Cleanup(func() {
		must(t, cluster.Client().Delete(context.Background(), binding))
		must(t, cluster.Client().Delete(context.Background(), role))
	})
	cfg := cluster.Config()
	cfg.Impersonate.UserName = "pods-test"
	return cfg
}

// serve runs the webhook in this process, tells the API server of it, and returns where it answers.
func serve(t *testing.T, cluster *testkit.Cluster, requests *testkit.Counter) string {
	t.Helper()
	m, c := &Mutator{}, newClient(t, requests.Wrap(limited(t, cluster)))
	m.Connect(config.Static(config.Default()), "kserve", c, c)
	m.sets = followReplicaSets(c, nil)
	following, unfollow := context.WithCancel(context.Background())
	var followed sync.WaitGroup
	followed.Go(func() { _ = m.sets.Start(following) }) // ends with the context only
	t.Cleanup(func() {
		unfollow()
		followed.Wait()
	})
	testkit.Eventually(t, 10*time.Second, "the ReplicaSets to be known", func() error {
		all := m.sets.of[metav1.NamespaceAll]
		all.mu.Lock()
		defer all.mu.Unlock()
		if !all.synced {
			return errors.New("they are not yet")
		}
		return nil
	})
	dir, ca := cluster.ServingCert(t)
	port := testkit.FreePort(t)
	server := webhook.NewServer(webhook.Options{Host: cluster.WebhookHost(), Port: port, CertDir: dir})
	admission.RegisterHooks(server, Hook(m))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-done)
	})
	testkit.Eventually(t, 10*time.Second, "the webhook server listens", func() error {
		conn, err := tls.Dial("tcp", net.JoinHostPort(cluster.WebhookHost(), strconv.Itoa(port)), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		return conn.Close()
	})
	configuration := admission.WithHooks(nil, "pods-test", admission.Service{Namespace: "n", Name: "s"}, Hook(m))
	cluster.PointWebhook(&configuration.Webhooks[0].ClientConfig, port, ca)
	must(t, cluster.Client().Create(t.Context(), configuration))
	t.Cleanup(func() { must(t, cluster.Client().Delete(context.Background(), configuration)) })
	asked(t, cluster)
	return "https://" + net.JoinHostPort(cluster.WebhookHost(), strconv.Itoa(port)) + Path
}

// asked waits until the API server asks the webhook, which it learns of after a
// moment.
func asked(t *testing.T, cluster *testkit.Cluster) {
	t.Helper()
	namespace := cluster.Namespace(t)
	testkit.Eventually(t, 30*time.Second, "the webhook to be asked", func() error {
		pod := podOf("pvc://claim")
		pod.Name, pod.Namespace = "probe", namespace
		if err := cluster.Client().Create(t.Context(), pod, client.DryRunAll); err != nil {
			return err
		}
		if len(pod.Spec.Volumes) == 0 {
			return errors.New("the pod has no volume")
		}
		return nil
	})
}
