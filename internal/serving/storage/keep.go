// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// AnnotationRest is on an object whose pod template has our own downloader. It recognises all of the template but the
// downloader's image and command. It is never in the template.
const AnnotationRest = "modelplane.dev/template-but-downloader"

// How our own downloader is started, now and in images from before modelplane-pod.
var (
	downloader       = []string{"/modelplane-pod", "storage-initializer"}
	formerDownloader = []string{"/modelplane", "storage-initializer"}
)

// Keep lets pods that run go on when nothing but our own downloader is new: it has done its work there, and every release
// brings another. The template keeps the image and command that it has; the next change of anything else brings the new
// ones. Another program, or the same one from another place, is somebody's decision and comes at once.
//
// live is the downloader in the template that is there, nil if there is none; was is what that object has as
// AnnotationRest, empty if it was made before there was one, and besides is what the template has beside the pod. It
// returns the new value of the annotation, or nothing where the downloader is not ours.
func Keep(pod *corev1.PodSpec, live *corev1.Container, was string, besides ...any) string {
	c := container(pod.InitContainers, InitializerName)
	if c == nil || !slices.Equal(c.Command, downloader) && !slices.Equal(c.Command, formerDownloader) {
		return ""
	}
	image, command := c.Image, c.Command
	c.Image, c.Command = "", nil
	rest := digest(append(besides, pod))
	c.Image, c.Command = image, command
	if live != nil && (was == "" || was == rest) && sameProgram(live, c) {
		c.Image, c.Command = live.Image, slices.Clone(live.Command)
	}
	return rest
}

// sameProgram tells whether a downloader is another version of ours. When modelplane-pod came, its image came from another
// place for everybody.
func sameProgram(live, next *corev1.Container) bool {
	if slices.Equal(live.Command, formerDownloader) && slices.Equal(next.Command, downloader) {
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

func digest(parts any) string {
	raw, err := json.Marshal(parts)
	if err != nil {
		return "" // Kubernetes types and maps of strings always encode
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
