// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func init() {
	if err := v1beta1.AddToScheme(enginetest.Scheme); err != nil {
		panic(err)
	}
	if err := gatewayv1.Install(enginetest.Scheme); err != nil {
		panic(err)
	}
}

// fleet is a service with what services usually have: a Deployment, a Service, an
// autoscaler and two routes, and pods that it looks at. It has the objects of
// serving without its decisions.
type fleet struct{}

type seenFleet struct {
	deployment *appsv1.Deployment
	routes     int
	pods       int
}

// fleetController keeps of the children and pods what it reads and no more.
func fleetController() engine.Controller {
	selector, err := labels.Parse(v1beta1.LabelInferenceService)
	if err != nil {
		panic(err)
	}
	return engine.For[*v1beta1.InferenceService, seenFleet](fleet{}, engine.Spec{
		Name:              "fleet",
		KnativeConditions: true,
		Children: []engine.ChildKind{
			{Object: &appsv1.Deployment{}, Trim: trimDeployment},
			{Object: &corev1.Service{}, MetadataOnly: true},
			{Object: &autoscalingv2.HorizontalPodAutoscaler{}, MetadataOnly: true},
			{Object: &gatewayv1.HTTPRoute{}, Optional: true, Trim: trimRoute},
		},
		Inputs: []engine.Input{{Object: &corev1.Pod{}, Select: selector, Trim: trimPod, Index: byService}},
	})
}

func byService(o client.Object) []string {
	return []string{o.GetLabels()[v1beta1.LabelInferenceService]}
}

func trimDeployment(o client.Object) {
	if d, ok := o.(*appsv1.Deployment); ok {
		d.Spec = appsv1.DeploymentSpec{Replicas: d.Spec.Replicas}
	}
}

func trimRoute(o client.Object) {
	if r, ok := o.(*gatewayv1.HTTPRoute); ok {
		r.Spec = gatewayv1.HTTPRouteSpec{}
	}
}

func trimPod(o client.Object) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	p.Annotations = nil
	spec := corev1.PodSpec{NodeName: p.Spec.NodeName}
	for _, c := range p.Spec.Containers {
		spec.Containers = append(spec.Containers, corev1.Container{Name: c.Name})
	}
	p.Spec = spec
}

func (fleet) Observe(ctx context.Context, r engine.Reader, isvc *v1beta1.InferenceService) (seenFleet, error) {
	seen := seenFleet{}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: isvc.Namespace, Name: isvc.Name + "-predictor"}}
	if err := r.Child(ctx, d); client.IgnoreNotFound(err) != nil {
		return seen, err
	} else if err == nil {
		seen.deployment = d
	}
	for _, name := range []string{isvc.Name, isvc.Name + "-predictor"} {
		route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: isvc.Namespace, Name: name}}
		if err := r.Child(ctx, route); client.IgnoreNotFound(err) != nil {
			return seen, err
		} else if err == nil {
			seen.routes++
		}
	}
	pods := &corev1.PodList{}
	err := r.List(ctx, pods, client.InNamespace(isvc.Namespace), engine.Indexed(isvc.Name))
	seen.pods = len(pods.Items)
	return seen, err
}

func (fleet) Plan(isvc *v1beta1.InferenceService, seen seenFleet) engine.Plan {
	conditions := []v1beta1.Condition{}
	for _, typ := range []string{"IngressReady", "PredictorReady", "Ready", "Stopped"} {
		c := v1beta1.Condition{Type: typ, Status: corev1.ConditionTrue, Reason: "Ready", Message: "The pods of Deployment " + isvc.Name + "-predictor are ready."}
		conditions = append(conditions, c)
	}
	url := "http://" + isvc.Name + "-" + isvc.Namespace + ".example.com"
	status := v1beta1.InferenceServiceStatus{
		URL: &url, Address: &v1beta1.Addressable{URL: &url}, DeploymentMode: "Standard", ClusterServingRuntimeName: "kserve-sklearnserver",
		Components: map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec{"predictor": {URL: &url, LatestCreatedRevision: strconv.Itoa(seen.pods)}},
	}
	status.Conditions = conditions
	status.ObservedGeneration = isvc.Generation
	return engine.Plan{Status: status, Children: []engine.Child{
		{Object: fleetDeployment(isvc), Initial: []string{"spec.replicas"}},
		{Object: fleetService(isvc)}, {Object: fleetScaler(isvc)},
		{Object: fleetRoute(isvc, isvc.Name)}, {Object: fleetRoute(isvc, isvc.Name+"-predictor")},
	}}
}

func fleetMeta(isvc *v1beta1.InferenceService, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: isvc.Namespace, Name: name,
		Labels: map[string]string{
			"app": "isvc." + isvc.Name + "-predictor", "component": "predictor", v1beta1.LabelInferenceService: isvc.Name,
		},
		Annotations: map[string]string{
			"internal.serving.kserve.io/storage-initializer-sourceuri": "s3://models/" + isvc.Name,
			"serving.kserve.io/deploymentMode":                         "Standard",
		},
	}
}

func fleetPod(isvc *v1beta1.InferenceService, name string) corev1.PodTemplateSpec {
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8080), Scheme: corev1.URISchemeHTTP}}}
	}
	amount := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("2Gi")}
	env := []corev1.EnvVar{{Name: "INFERENCE_SERVICE_NAME", Value: isvc.Name}}
	for i := range 10 {
		env = append(env, corev1.EnvVar{Name: fmt.Sprintf("MODEL_OPTION_%d", i), Value: fmt.Sprintf("value-%d-of-%s", i, isvc.Name)})
	}
	container := func(name string, ports ...corev1.ContainerPort) corev1.Container {
		return corev1.Container{
			Name: name, Image: "kserve/sklearnserver:v0.20.0", Env: env, Ports: ports,
			Args:      []string{"--model_name=" + isvc.Name, "--model_dir=/mnt/models", "--http_port=8080"},
			Resources: corev1.ResourceRequirements{Limits: amount, Requests: amount},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), RunAsNonRoot: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "model", MountPath: "/mnt/models", ReadOnly: true}, {Name: "scratch", MountPath: "/tmp"}},
		}
	}
	main := container("kserve-container", corev1.ContainerPort{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP})
	main.LivenessProbe, main.ReadinessProbe = probe("/live"), probe("/ready")
	return corev1.PodTemplateSpec{
		ObjectMeta: fleetMeta(isvc, name),
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{container("storage-initializer")}, Containers: []corev1.Container{main},
			Volumes: []corev1.Volume{
				{Name: "model", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
			AutomountServiceAccountToken: ptr.To(false),
		},
	}
}

func fleetDeployment(isvc *v1beta1.InferenceService) *appsv1.Deployment {
	name := isvc.Name + "-predictor"
	return &appsv1.Deployment{ObjectMeta: fleetMeta(isvc, name), Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "isvc." + name}}, Template: fleetPod(isvc, name),
	}}
}

func fleetService(isvc *v1beta1.InferenceService) *corev1.Service {
	name := isvc.Name + "-predictor"
	return &corev1.Service{ObjectMeta: fleetMeta(isvc, name), Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, // a cluster has fewer addresses than we have services
		Selector:  map[string]string{"app": "isvc." + name},
		Ports:     []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP}},
	}}
}

func fleetScaler(isvc *v1beta1.InferenceService) *autoscalingv2.HorizontalPodAutoscaler {
	name := isvc.Name + "-predictor"
	return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: fleetMeta(isvc, name), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		MinReplicas: ptr.To[int32](1), MaxReplicas: 3,
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: "cpu", Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](80)}}}},
	}}
}

func fleetRoute(isvc *v1beta1.InferenceService, name string) *gatewayv1.HTTPRoute {
	port := gatewayv1.PortNumber(80)
	return &gatewayv1.HTTPRoute{ObjectMeta: fleetMeta(isvc, name), Spec: gatewayv1.HTTPRouteSpec{
		CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{
			Group: ptr.To[gatewayv1.Group]("gateway.networking.k8s.io"), Kind: ptr.To[gatewayv1.Kind]("Gateway"),
			Namespace: ptr.To[gatewayv1.Namespace]("kserve"), Name: "kserve-ingress-gateway"}}},
		Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(name + "-" + isvc.Namespace + ".example.com")},
		Rules: []gatewayv1.HTTPRouteRule{{
			Matches: []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{
				Type: ptr.To(gatewayv1.PathMatchRegularExpression), Value: ptr.To("^/.*$")}}},
			Filters: []gatewayv1.HTTPRouteFilter{{Type: gatewayv1.HTTPRouteFilterRequestHeaderModifier,
				RequestHeaderModifier: &gatewayv1.HTTPHeaderFilter{Set: []gatewayv1.HTTPHeader{
					{Name: "KServe-Isvc-Name", Value: isvc.Name}, {Name: "KServe-Isvc-Namespace", Value: isvc.Namespace}}}}},
			BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{
				Kind: ptr.To[gatewayv1.Kind]("Service"), Name: gatewayv1.ObjectName(isvc.Name + "-predictor"), Port: &port}}}},
			Timeouts: &gatewayv1.HTTPRouteTimeouts{Request: ptr.To[gatewayv1.Duration]("60s")},
		}},
	}}
}

// BenchmarkFleet prints what services with five children and a pod each cost the
// manager: while it makes them, and when it starts with all of them.
func BenchmarkFleet(b *testing.B) {
	services := 1000
	if n, err := strconv.Atoi(os.Getenv("MODELPLANE_BENCH_SERVICES")); err == nil {
		services = n
	}
	bench := enginetest.New(b)
	bench.InstallCRDs(b, testkit.ThirdParty(testkit.GatewayAPI)...)
	all, err := charts.CRDs()
	if err != nil {
		b.Fatal(err)
	}
	for _, crd := range all {
		if crd.Name == "inferenceservices.serving.kserve.io" {
			bench.InstallCRDs(b, crd)
		}
	}
	for range b.N {
		p := start(b, bench, true)
		makeServices(b, bench, services)
		testkit.Eventually(b, 15*time.Minute, "all services to be ready", func() error { return servicesReady(bench, services) })
		now, peak := p.memory(b)
		p.stop()
		fmt.Printf("%d services made: %.1f MiB, peak %.1f MiB\n", services, float64(now)/1024, float64(peak)/1024)

		p = start(b, bench, true)
		probe := fleetObject(bench.NS, "probe")
		bench.Create(b, probe)
		testkit.Eventually(b, 5*time.Minute, "the restarted manager to have caught up", func() error { return servicesReady(bench, services+1) })
		restarted, restartedPeak := p.memory(b)
		p.stop()
		fmt.Printf("%d services found: %.1f MiB, peak %.1f MiB\n", services, float64(restarted)/1024, float64(restartedPeak)/1024)
		b.ReportMetric(float64(max(peak, restartedPeak))/1024, "MiB-peak")
	}
}

func fleetObject(ns, name string) *v1beta1.InferenceService {
	isvc := &v1beta1.InferenceService{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	isvc.Spec.Predictor.Model = &v1beta1.ModelSpec{ModelFormat: v1beta1.ModelFormat{Name: "sklearn"}}
	isvc.Spec.Predictor.Model.StorageURI = ptr.To("s3://models/" + name)
	return isvc
}

func makeServices(b *testing.B, bench *enginetest.Bench, n int) {
	b.Helper()
	work := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range work {
				isvc := fleetObject(bench.NS, fmt.Sprintf("service-%d", i))
				template := fleetPod(isvc, isvc.Name+"-pod")
				pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
				for _, o := range []client.Object{isvc, pod} {
					if err := bench.C.Create(context.Background(), o); err != nil {
						b.Errorf("create: %v", err)
					}
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
}

func servicesReady(bench *enginetest.Bench, want int) error {
	list := &v1beta1.InferenceServiceList{}
	if err := bench.C.List(context.Background(), list, client.InNamespace(bench.NS)); err != nil {
		return err
	}
	ready := 0
	for _, s := range list.Items {
		if s.Status.ObservedGeneration == s.Generation {
			ready++
		}
	}
	if ready != want {
		return fmt.Errorf("%d of %d are ready", ready, want)
	}
	return nil
}
