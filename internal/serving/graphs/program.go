// SPDX-License-Identifier: Apache-2.0

package graphs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/config"
)

// annotationRest is on the router's own object (not on its pods) when it runs our own router. It recognises all of the
// template but the program.
const annotationRest = "modelplane.dev/template-but-router"

// ownRouter is how our own router is started, and formerRouter the image that the chart named before there was one.
var ownRouter = []string{"/modelplane-pod", "router"}

const formerRouter = "kserve/router"

// start says which program the router's pod runs. A router that runs goes on with the program that it has when nothing but
// our own is new: every release brings another, and a graph answers all the while. The next change of anything else brings
// the new one. Another program, or ours from another place, is somebody's decision and comes at once.
func (p *planner) start(pod *corev1.PodSpec, spec *v1alpha1.InferenceGraphSpec) {
	router, c := &p.seen.Config.Router, &pod.Containers[0]
	c.Image, c.Command = router.Image, slices.Clone(router.Command)
	if !slices.Equal(router.Command, ownRouter) {
		return
	}
	c.Image, c.Command = "", nil
	p.rest = digest(pod, p.labels(), p.seen.Config.FilterAnnotations(p.graph.Annotations))
	c.Image, c.Command = router.Image, slices.Clone(ownRouter)
	if live := p.program(); live != nil && p.unchanged() && another(live, c) {
		c.Image, c.Command = live.Image, slices.Clone(live.Command)
	}
	if slices.Equal(c.Command, ownRouter) && p.seen.Mode == config.ModeStandard {
		pod.TerminationGracePeriodSeconds = ptr.To(grace(spec))
	}
}

// unchanged tells whether everything but the program is what the router was made of. One that was made before there was a
// record is taken for unchanged while the spec is.
func (p *planner) unchanged() bool {
	live := p.live()
	was := live.GetAnnotations()[annotationRest]
	return was == p.rest || was == "" && !p.outdated(live)
}

// another tells whether a program is another version of ours, or the one that had its place.
func another(live, next *corev1.Container) bool {
	if len(live.Command) == 0 && placeOf(live.Image) == formerRouter {
		return true
	}
	return slices.Equal(live.Command, next.Command) && placeOf(live.Image) == placeOf(next.Image)
}

// placeOf is an image without its tag and digest. A registry may have a port.
func placeOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		image = image[:i]
	}
	return image
}

// program is the container of the router that is there, nil if there is none.
func (p *planner) program() *corev1.Container {
	var pod corev1.PodSpec
	switch {
	case p.seen.Deployment != nil:
		pod = p.seen.Deployment.Spec.Template.Spec
	case p.seen.Knative != nil:
		spec, _, err := unstructured.NestedMap(p.seen.Knative.Object, "spec", "template", "spec")
		if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod) != nil {
			return nil
		}
	}
	if len(pod.Containers) != 1 {
		return nil
	}
	return &pod.Containers[0]
}

// What our own router needs to end, in seconds: while it is taken out of the Service, the longest request, its last words,
// and some more. It waits for requests without a limit for ten minutes.
const (
	endDelay, endWords, endSpare = 5, 5, 5
	usualRequest, longestEnd     = 60, 600
)

// grace is how long the pod may take to end, so that no request is cut off. A router without requests ends at once.
func grace(spec *v1alpha1.InferenceGraphSpec) int64 {
	request := int64(usualRequest)
	if limits := spec.RouterTimeouts; limits != nil && limits.ServerWrite != nil {
		request = *limits.ServerWrite
	}
	if request <= 0 || request > longestEnd {
		return longestEnd + endSpare
	}
	return min(longestEnd, endDelay+request+endWords) + endSpare
}

func digest(parts ...any) string {
	raw, err := json.Marshal(parts)
	if err != nil {
		return "" // Kubernetes types and maps of strings always encode
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
