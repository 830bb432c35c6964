// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestKeep(t *testing.T) {
	pod := func(image, command, server string) *corev1.PodSpec {
		return &corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: InitializerName, Image: image, Command: strings.Fields(command)}},
			Containers:     []corev1.Container{{Name: MainContainer, Image: server}},
		}
	}
	const former, current = "/modelplane storage-initializer", "/modelplane-pod storage-initializer"
	rest := Keep(pod("r:5000/modelplane-pod:2", current, "server"), nil, "")
	if rest == "" || rest != Keep(pod("other", current, "server"), nil, "") || rest == Keep(pod("other", current, "another"), nil, "") {
		t.Error("the rest does not depend on the rest alone")
	}
	if rest == Keep(pod("other", current, "server"), nil, "", map[string]string{"a": "b"}) {
		t.Error("what stands beside the pod does not count")
	}
	for _, c := range []struct {
		name                              string
		liveImage, liveCommand, was, next string
		command                           string
		kept                              bool
	}{
		{"another version", "r:5000/modelplane-pod:1", current, rest, "r:5000/modelplane-pod:2", current, true},
		{"another version by digest", "r:5000/modelplane-pod@sha256:1", current, rest, "r:5000/modelplane-pod:2", current, true},
		{"made before there was a record", "modelplane:1", former, "", "elsewhere/x-pod:2", current, true},
		{"something else changed", "r:5000/modelplane-pod:1", current, "other", "r:5000/modelplane-pod:2", current, false},
		{"another registry", "q:5000/modelplane-pod:1", current, rest, "r:5000/modelplane-pod:2", current, false},
		{"another program before", "kserve/storage-initializer:1", "", rest, "r:5000/modelplane-pod:2", current, false},
		{"another program now", "r:5000/modelplane-pod:1", current, rest, "kserve/storage-initializer:1", "", false},
		{"back to the former one", "r:5000/modelplane-pod:1", current, rest, "r:5000/modelplane:2", former, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := pod(c.next, c.command, "server")
			live := &corev1.Container{Image: c.liveImage, Command: strings.Fields(c.liveCommand)}
			if said := Keep(got, live, c.was); (said == rest) != (c.command != "") {
				t.Errorf("the record is %q", said)
			}
			image, command := c.next, c.command
			if c.kept {
				image, command = c.liveImage, c.liveCommand
			}
			if i := got.InitContainers[0]; i.Image != image || strings.Join(i.Command, " ") != command {
				t.Errorf("the template has %s %q, want %s %q", i.Image, i.Command, image, command)
			}
		})
	}
}
