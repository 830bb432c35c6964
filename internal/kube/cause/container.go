// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// container is one container of a pod and how it fares.
type container struct {
	pod    *corev1.Pod
	status *corev1.ContainerStatus
	spec   *corev1.Container
	init   bool
	order  int
}

// look says what is to be said about the container, if anything.
func (c container) look() []Finding {
	f, ok := c.finding()
	if !ok {
		return nil
	}
	f.Container, f.Init, f.order = c.status.Name, c.init, c.order
	if f.late != nil {
		f.late.Container, f.late.Init, f.late.order = f.Container, f.Init, f.order
	}
	return []Finding{f}
}

func (c container) finding() (Finding, bool) {
	s := c.status
	if s.Ready || c.done() {
		return Finding{}, false
	}
	if w := s.State.Waiting; w != nil && w.Reason != CrashLoopBackOff {
		return c.held(w), true
	}
	t := ended(s)
	switch {
	case t != nil:
		return c.crash(t), true
	case s.State.Running != nil:
		return c.running(s.State.Running), true
	case s.State.Waiting != nil:
		// CrashLoopBackOff, and nobody remembers how it ended.
		return c.crash(&corev1.ContainerStateTerminated{}), true
	}
	return waiting(nil), true
}

// done tells whether a container has come to its end as it should.
func (c container) done() bool {
	t := c.status.State.Terminated
	if t == nil || t.ExitCode != 0 {
		return false
	}
	if c.init {
		return c.oneShot()
	}
	return c.pod.Spec.RestartPolicy == corev1.RestartPolicyNever || c.pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
}

// oneShot tells an init container that has to end from a sidecar.
func (c container) oneShot() bool {
	return c.init && ptr.Deref(c.spec.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways
}

// ended is how a container last ended. It is asked while the container runs again, too: until it is ready nothing has
// proved that the cause is gone.
func ended(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	last := s.LastTerminationState.Terminated
	if last != nil && (last.Reason == "Unknown" || last.Reason == "ContainerStatusUnknown") {
		// So it looks after the node was started anew, which is no fault of the container.
		return nil
	}
	return last
}

// held is why a container is not started at all.
func (c container) held(w *corev1.ContainerStateWaiting) Finding {
	image := quoted(firstOf(c.spec.Image, c.status.Image))
	switch w.Reason {
	case "", ContainerCreating, "PodInitializing":
		return c.creating(w)
	case "ErrImagePull", ImagePullBackOff, "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed":
		return c.notPulled(w.Message)
	case ErrImageNeverPull:
		return blocking(ErrImageNeverPull, "The image %s of %s is not on the node, and its pull policy is Never. Load it onto "+
			"the nodes, or let it be pulled.", image, c)
	case InvalidImageName:
		return blocking(InvalidImageName, "%s is no image name that %s could run. Correct it.", image, c)
	case CreateContainerConfigError:
		return blocking(CreateContainerConfigError, "%s cannot be made: %s %s",
			capital(c.String()), sentence(words(w.Message, c.pod)), configStep(w.Message))
	case RunContainerError:
		return c.notRunnable(w.Message)
	}
	f := blocking(reasonOr(w.Reason, "ContainerNotStarted"), "%s cannot be started: %s Look at the events of the pod with kubectl "+
		"describe.", capital(c.String()), sentence(words(w.Message, c.pod)))
	f.Blocking = false
	return f
}

// notPulled is an image that is not to be had: the container's own, or one that it mounts.
func (c container) notPulled(message string) Finding {
	image, whose := firstOf(c.spec.Image, c.status.Image), c.String()
	for _, v := range c.pod.Spec.Volumes {
		if v.Image != nil && v.Image.Reference != "" && v.Image.Reference != image && strings.Contains(message, v.Image.Reference) {
			image, whose = v.Image.Reference, "volume "+v.Name
		}
	}
	why, next := pullFailure(strings.ReplaceAll(message, image, ""))
	return blocking(ImagePullBackOff, "The image %s of %s cannot be pulled: %s. %s", quoted(image), whose, why, next)
}

func configStep(message string) string {
	lower := strings.ToLower(message)
	switch {
	case strings.Contains(lower, "runasnonroot"), strings.Contains(lower, "run as root"):
		return "Set runAsUser to another user than 0, or take an image that does."
	case strings.Contains(lower, "secret"):
		return "Create the Secret with that key, or correct its name."
	case strings.Contains(lower, "configmap"):
		return "Create the ConfigMap with that key, or correct its name."
	}
	return "Correct what the container refers to."
}

func (c container) notRunnable(message string) Finding {
	return blocking(RunContainerError, "%s cannot be run: %s Correct its command, or the image.",
		capital(c.String()), sentence(words(innermost(message), c.pod)))
}

// crash is a container that ended, whatever it does at the moment.
func (c container) crash(t *corev1.ContainerStateTerminated) Finding {
	var f Finding
	switch {
	case c.outOfMemory(t):
		f = blocking(OOMKilled, "%s was killed because it needs more memory than %s. Raise its memory limit, or give it "+
			"less to do.", capital(c.String()), memoryLimit(c.spec))
	case t.Reason == "StartError":
		f = c.notRunnable(t.Message)
	default:
		f = c.lastWords(t)
	}
	f.ExitCode = t.ExitCode
	return f
}

// outOfMemory also recognises a kill that nobody but the kernel can have done: container runtimes often hear too late that
// it was for want of memory, and not at all when it struck a child of the first process. Both are told in the same words,
// because one and the same crash loop is reported now in this way and now in that.
func (c container) outOfMemory(t *corev1.ContainerStateTerminated) bool {
	const killed = 128 + 9
	return t.Reason == OOMKilled || t.Reason == "Error" && t.ExitCode == killed &&
		c.spec.LivenessProbe == nil && c.spec.StartupProbe == nil
}

func (c container) lastWords(t *corev1.ContainerStateTerminated) Finding {
	reason, happened := CrashLoopBackOff, "ended"
	if c.init {
		reason, happened = InitContainerFailed, "failed"
	}
	text := capital(c.String()) + " " + happened
	if t.ExitCode != 0 || t.Reason != "" {
		text += fmt.Sprintf(" with exit code %d%s", t.ExitCode, signal(t.ExitCode))
	}
	said := words(t.Message, c.pod)
	if said != "" {
		text += ": " + said
	}
	return blocking(reason, "%s %s", sentence(text), crashStep(c.status.Name, said))
}

// creating is a container whose turn has not come, or whose volumes and network are being set up.
func (c container) creating(w *corev1.ContainerStateWaiting) Finding {
	if w.Reason != ContainerCreating {
		return waiting(nil)
	}
	return waiting(&Finding{Reason: ContainerCreating, Message: fmt.Sprintf("%s is still being made; mostly a volume cannot be "+
		"mounted. Look at the events of the pod with kubectl describe.", capital(c.String()))})
}

// running is a container that runs and is not ready. At a start that is as it should be; it is a fault when the pod has
// been ready before, or when the Deployment says that it took too long.
func (c container) running(r *corev1.ContainerStateRunning) Finding {
	if c.oneShot() {
		return waiting(&Finding{Reason: InitContainerRunning, Message: fmt.Sprintf("%s has not come to its end. See its log with "+
			"kubectl logs -c %s.", capital(c.String()), c.status.Name)})
	}
	late := Finding{Reason: Unhealthy, Message: c.unhealthy()}
	lost := condition(c.pod, corev1.PodReady)
	if lost != nil && !r.StartedAt.IsZero() && lost.LastTransitionTime.Sub(r.StartedAt.Time) > time.Second {
		return late
	}
	return waiting(&late)
}

func (c container) unhealthy() string {
	kind, probe := "readiness", c.spec.ReadinessProbe
	if c.spec.StartupProbe != nil && !ptr.Deref(c.status.Started, false) {
		kind, probe = "startup", c.spec.StartupProbe
	}
	return fmt.Sprintf("%s runs, but its %s probe%s fails. See its log with kubectl logs -c %s, and check the probe.",
		capital(c.String()), kind, describe(probe), c.status.Name)
}

// describe says what a probe does.
func describe(p *corev1.Probe) string {
	switch {
	case p == nil:
		return ""
	case p.HTTPGet != nil:
		return fmt.Sprintf(" (GET %s on port %s)", firstOf(p.HTTPGet.Path, "/"), p.HTTPGet.Port.String())
	case p.TCPSocket != nil:
		return fmt.Sprintf(" (TCP port %s)", p.TCPSocket.Port.String())
	case p.GRPC != nil:
		return fmt.Sprintf(" (gRPC port %d)", p.GRPC.Port)
	case p.Exec != nil:
		return " (a command)"
	}
	return ""
}

func memoryLimit(spec *corev1.Container) string {
	if limit, ok := spec.Resources.Limits[corev1.ResourceMemory]; ok && !limit.IsZero() {
		return "its limit of " + limit.String()
	}
	return "its node could give"
}

func blocking(reason, format string, args ...any) Finding {
	return Finding{Reason: reason, Message: fmt.Sprintf(format, args...), Blocking: true}
}

// String names the container as sentences do.
func (c container) String() string {
	if c.init {
		return "init container " + c.status.Name
	}
	return "container " + c.status.Name
}
