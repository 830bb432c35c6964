// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/admission"
)

// reserved is the beginning of names that only the mesh gives.
const reserved = "mm-"

var (
	ownContainers = []string{containerMesh, containerProxy, containerPuller}
	ownMounts     = []string{volumeStorage, volumeEtcd, volumeTypes, volumeSockets}
	ownPortNames  = []string{"grpc", "http", "prometheus"}
	ownPorts      = []int32{8080, defaultManagement, 8089, preStopPort}
)

// examine finds everything that would keep a multi-model runtime from running. Others are not looked at. A nil list of
// server types stands for any.
func examine(rt *view, serverTypes []string) *admission.Report {
	found := &admission.Report{}
	if rt.spec.MultiModel == nil || !*rt.spec.MultiModel {
		return found
	}
	root := field.NewPath("spec")
	examineScaling(found, rt)
	examineAdapter(found, rt, root, serverTypes)
	for i := range rt.spec.Containers {
		examineContainer(found, &rt.spec.Containers[i], root.Child("containers").Index(i))
	}
	for i, v := range rt.spec.Volumes {
		if slices.Contains(ownMounts, v.Name) || v.Name == volumeModels || v.Name == volumeTLS || strings.HasPrefix(v.Name, reserved) {
			found.Refuse(field.Invalid(root.Child("volumes").Index(i).Child("name"), v.Name, "is the name of a volume of the mesh; choose another"))
		}
	}
	examineEndpoints(found, rt, root)
	if rt.spec.HTTPDataEndpoint != nil {
		found.Warn(root.Child("httpDataEndpoint"), "has no effect on a multi-model runtime, which is asked over gRPC")
	}
	return found
}

func examineEndpoints(found *admission.Report, rt *view, root *field.Path) {
	var dirs []string
	for _, e := range []struct {
		name string
		text *string
	}{{"grpcEndpoint", rt.spec.GrpcMultiModelManagementEndpoint}, {"grpcDataEndpoint", rt.spec.GrpcDataEndpoint}} {
		parsed, err := parseEndpoint(e.text)
		if err != nil {
			found.Refuse(field.Invalid(root.Child(e.name), *e.text, err.Error()))
		}
		if parsed.socket != "" {
			dirs = append(dirs, path.Dir(parsed.socket))
		}
	}
	if len(dirs) == 2 && dirs[0] != dirs[1] {
		found.Refuse(field.Invalid(root.Child("grpcDataEndpoint"), *rt.spec.GrpcDataEndpoint,
			fmt.Sprintf("is in another directory than the socket of grpcEndpoint (%s); put both into one, which is shared with the mesh", dirs[0])))
	}
}

func examineAdapter(found *admission.Report, rt *view, root *field.Path, serverTypes []string) {
	a := rt.spec.BuiltInAdapter
	if a == nil {
		return
	}
	at, server := root.Child("builtInAdapter", "serverType"), string(a.ServerType)
	if serverTypes != nil && !slices.Contains(serverTypes, server) {
		found.Refuse(field.NotSupported(at, server, serverTypes))
	}
	if !slices.ContainsFunc(rt.spec.Containers, func(c corev1.Container) bool { return c.Name == server }) {
		found.Refuse(field.Invalid(at, server, "there is no container of this name, which the adapter would connect; name the server's container so"))
	}
	for i := range rt.spec.Containers {
		if rt.spec.Containers[i].Name == server+adapterSuffix {
			found.Refuse(field.Invalid(root.Child("containers").Index(i).Child("name"), server+adapterSuffix, "is the name of the adapter; choose another"))
		}
	}
}

func examineContainer(found *admission.Report, c *corev1.Container, at *field.Path) {
	if slices.Contains(ownContainers, c.Name) || strings.HasPrefix(c.Name, reserved) {
		found.Refuse(field.Invalid(at.Child("name"), c.Name, "is the name of a container of the mesh; choose another"))
	}
	if c.ReadinessProbe != nil {
		found.Refuse(field.Forbidden(at.Child("readinessProbe"), "the mesh itself finds out whether a runtime is ready; remove it"))
	}
	if c.Lifecycle != nil {
		found.Refuse(field.Forbidden(at.Child("lifecycle"), "the mesh decides when a runtime may end; remove it"))
	}
	for i, m := range c.VolumeMounts {
		if slices.Contains(ownMounts, m.Name) || strings.HasPrefix(m.Name, reserved) {
			found.Refuse(field.Invalid(at.Child("volumeMounts").Index(i).Child("name"), m.Name, "is a volume of the mesh, which a runtime must not mount; remove it"))
		}
	}
	for i, p := range c.Ports {
		port := at.Child("ports").Index(i)
		if slices.Contains(ownPortNames, p.Name) || strings.HasPrefix(p.Name, reserved) {
			found.Refuse(field.Invalid(port.Child("name"), p.Name, "is the name of a port of the mesh; choose another"))
		}
		if slices.Contains(ownPorts, p.ContainerPort) || p.ContainerPort >= 11881 && p.ContainerPort <= 11899 {
			found.Refuse(field.Invalid(port.Child("containerPort"), p.ContainerPort, "is a port of the mesh; choose another"))
		}
	}
}

// examineScaling looks at the annotations that ask for an autoscaler.
func examineScaling(found *admission.Report, rt *view) {
	at := field.NewPath("metadata", "annotations")
	class, given := rt.annotations[v1beta1.AnnotationAutoscalerClass]
	if given && class != classHPA && class != classNone {
		found.Refuse(field.NotSupported(at.Key(v1beta1.AnnotationAutoscalerClass), class, []string{classHPA, classNone}))
	}
	metric, metricGiven := rt.annotations[v1beta1.AnnotationMetrics]
	if known := []string{string(corev1.ResourceCPU), string(corev1.ResourceMemory)}; metricGiven && !slices.Contains(known, metric) {
		found.Refuse(field.NotSupported(at.Key(v1beta1.AnnotationMetrics), metric, known))
	}
	whole := func(annotation string, least, most int64) (int64, bool) {
		text, given := rt.annotations[annotation]
		if !given {
			return 0, false
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < least || most > 0 && n > most {
			bounds := fmt.Sprintf("write a whole number of at least %d", least)
			if most > 0 {
				bounds = fmt.Sprintf("write a whole number from %d to %d", least, most)
			}
			found.Refuse(field.Invalid(at.Key(annotation), text, bounds))
			return 0, false
		}
		return n, true
	}
	most := int64(100)
	if metric == string(corev1.ResourceMemory) {
		most = 0
	}
	whole(v1beta1.AnnotationTargetUtilization, 1, most)
	least, bounded := whole(annotationMinScale, 1, 0)
	largest, capped := whole(annotationMaxScale, 1, 0)
	if bounded && capped && least > largest {
		found.Refuse(field.Invalid(at.Key(annotationMinScale), rt.annotations[annotationMinScale],
			fmt.Sprintf("is more than %s (%d); lower it or raise the other", annotationMaxScale, largest)))
	}
	if class == classHPA && rt.spec.Replicas != nil {
		found.Refuse(field.Invalid(field.NewPath("spec", "replicas"), *rt.spec.Replicas,
			"cannot be set where "+v1beta1.AnnotationAutoscalerClass+" asks for an autoscaler; remove one of the two"))
	}
}
