// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/kube/address"
)

// What the downloader is told to make the most of Hugging Face.
var huggingFace = []corev1.EnvVar{
	{Name: "HF_HUB_ENABLE_HF_TRANSFER", Value: "1"},
	{Name: "HF_XET_HIGH_PERFORMANCE", Value: "1"},
	{Name: "HF_XET_NUM_CONCURRENT_RANGE_GETS", Value: "8"},
}

// Inject puts the models of a source into a pod. A pod that has them already
// stays as it is, because webhooks are called again after others.
func Inject(pod *corev1.PodSpec, in Injection) error {
	models := in.models()
	if len(models) == 0 || in.pulled() {
		return nil
	}
	targets, err := targetsOf(pod)
	if err != nil {
		return err
	}
	i := injector{Injection: in, pod: pod, targets: targets}
	if in.Spec != nil && len(in.URIs) == 0 {
		if i.entry, err = findEntry(models[0].Uri, in); err != nil {
			return err
		}
		models[0].Uri = i.entry.uri
	}
	if err := i.sort(models); err != nil {
		return err
	}
	for _, step := range []func() error{i.mountClaims, i.mountImages, i.fetchImages, i.download} {
		if err := step(); err != nil {
			return err
		}
	}
	if in.uri() != "" {
		i.tellPath()
	}
	return nil
}

// pulled is true for a pod whose agent pulls its models.
func (in Injection) pulled() bool {
	_, ok := in.Annotations[v1beta1.AnnotationAgent]
	return ok
}

// readOnly tells whether containers may write to their models.
func (in Injection) readOnly() bool {
	return in.Annotations[v1beta1.AnnotationStorageReadOnly] != "false"
}

// targetsOf names the containers that see the models.
func targetsOf(pod *corev1.PodSpec) ([]string, error) {
	var out []string
	for _, name := range []string{MainContainer, WorkerContainer} {
		if container(pod.Containers, name) != nil {
			out = append(out, name)
			break
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no container of the pod is named %s or %s, so that none would see the model; name the one that serves it %s",
			MainContainer, WorkerContainer, MainContainer)
	}
	if container(pod.Containers, TransformerContainer) != nil {
		out = append(out, TransformerContainer)
	}
	return out, nil
}

// injector holds one pod and its models, sorted by the way they come.
type injector struct {
	Injection
	pod     *corev1.PodSpec
	targets []string
	entry   *entry // of the storage secret, when the source names one

	claims, downloads        []v1beta1.StorageUri
	modelcars, images, fetch []v1beta1.StorageUri // OCI, without the mode in the scheme
}

func (i *injector) sort(models []v1beta1.StorageUri) error {
	for _, m := range models {
		mode, uri, err := ociMode(m.Uri, i.Config.StorageInitializer)
		if err != nil {
			return err
		}
		m.Uri = uri
		switch {
		case mode != "":
			i.sortImage(mode, m)
		case schemeOf(uri) == schemePVC:
			i.claims = append(i.claims, m)
		default:
			i.downloads = append(i.downloads, m)
		}
	}
	if len(i.fetch) > 0 && len(i.downloads) > 0 {
		return fmt.Errorf("storageUris: %s is fetched as an OCI image and cannot be mixed with downloads such as %s; "+
			"use mode modelcar or native for it, or one kind of address only", address.Shown(i.fetch[0].Uri), address.Shown(i.downloads[0].Uri))
	}
	if (len(i.modelcars) > 0 || len(i.images) > 0) && i.ContainerName != "" {
		return fmt.Errorf("storageContainerName: %s has no part in a model that is mounted as an OCI image; remove it, or use scheme %s",
			i.ContainerName, schemeFetch)
	}
	return nil
}

// mountClaims mounts PersistentVolumeClaims. A single one has a fixed name.
func (i *injector) mountClaims() error {
	for _, m := range i.claims {
		claim, sub, err := parseClaim(fieldURI, m.Uri)
		if err != nil {
			return err
		}
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
		name := claimVolume
		if len(i.URIs) > 0 {
			name = placeVolume(i.pod, m.MountPath, claimVolume, source)
		} else {
			addVolume(&i.pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		}
		if err := i.mount(corev1.VolumeMount{Name: name, MountPath: m.MountPath, SubPath: sub, ReadOnly: i.readOnly()}); err != nil {
			return err
		}
	}
	return nil
}

// mount mounts a volume in every target, unless it is there.
func (i *injector) mount(m corev1.VolumeMount) error {
	for _, name := range i.targets {
		c := container(i.pod.Containers, name)
		if other := mountedAt(c, m.MountPath); other != nil && other.Name != m.Name {
			return fmt.Errorf("container %s has volume %s at %s, where the model would be mounted; mount the volume elsewhere",
				name, other.Name, m.MountPath)
		}
		addMount(c, m)
	}
	return nil
}

// download adds the init container that brings everything that is not mounted
// from elsewhere.
func (i *injector) download() error {
	if len(i.downloads) == 0 || container(i.pod.InitContainers, InitializerName) != nil {
		return nil
	}
	over, err := i.pick(i.downloads)
	if err != nil {
		return err
	}
	c := i.initializer(i.downloads)
	place, name := ModelPath, provisionVolume
	if len(i.URIs) > 0 {
		if place, err = commonPlace(i.downloads); err != nil {
			return err
		}
		name = placeVolume(i.pod, place, provisionVolume, emptyDir())
	} else {
		addVolume(&i.pod.Volumes, corev1.Volume{Name: name, VolumeSource: emptyDir()})
	}
	addMount(&c, corev1.VolumeMount{Name: name, MountPath: place})
	if err := i.mount(corev1.VolumeMount{Name: name, MountPath: place, ReadOnly: i.readOnly()}); err != nil {
		return err
	}
	own := i.credentials(&c)
	i.confide(&c)
	if err := i.finish(&c, over, own); err != nil {
		return err
	}
	defaultEnv(&c, huggingFace...)
	defaultEnv(&c, registryEnv(i.downloads, i.Config.StorageInitializer.ModelRegistryURL)...)
	i.pod.InitContainers = append(i.pod.InitContainers, c)
	return nil
}

// commonPlace is where the volume of several downloads goes.
func commonPlace(models []v1beta1.StorageUri) (string, error) {
	var places []string
	for _, m := range models {
		places = append(places, m.MountPath)
	}
	place := commonParent(places)
	if place == "/" {
		return "", errors.New("storageUris: the mount paths have no common directory below the root; put the models for example below " + ModelPath)
	}
	return place, nil
}

func emptyDir() corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
}

func (i *injector) pick(models []v1beta1.StorageUri) (*v1alpha1.ClusterStorageContainer, error) {
	var uris []string
	for _, m := range models {
		uris = append(uris, m.Uri)
	}
	if len(i.URIs) > 0 {
		return pickAll(uris, i.ContainerName, i.Containers)
	}
	return Pick(uris[0], i.ContainerName, i.Containers)
}

// initializer is the download container without mounts and credentials.
func (i *injector) initializer(models []v1beta1.StorageUri) corev1.Container {
	cfg := i.Config.StorageInitializer
	c := corev1.Container{
		Name:                     InitializerName,
		Image:                    cfg.Image,
		Command:                  slices.Clone(cfg.Command),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources:                cfg.Requirements(),
	}
	for _, m := range models {
		c.Args = append(c.Args, m.Uri, m.MountPath)
	}
	return c
}

// confide tells the downloader that models are encrypted.
func (i *injector) confide(c *corev1.Container) {
	if i.Confidential == nil || !i.Confidential.Enabled {
		return
	}
	setEnv(c, corev1.EnvVar{Name: "CONFIDENTIAL_ENABLED", Value: trueValue})
	if id := i.Confidential.ResourceID; id != nil && *id != "" {
		setEnv(c, corev1.EnvVar{Name: "CONFIDENTIAL_RESOURCE_ID", Value: *id})
	}
}

// finish adds what comes after credentials: the cluster's own container laid
// over, certificates that it did not bring itself, and a tight security context.
func (i *injector) finish(c *corev1.Container, over *v1alpha1.ClusterStorageContainer, own bundle) error {
	if err := overlay(c, over); err != nil {
		return err
	}
	i.trust(c, own)
	restrict(c, i.pod.SecurityContext)
	return nil
}

// tellPath makes a custom container that asked by environment find its model.
func (i *injector) tellPath() {
	c := container(i.pod.Containers, i.targets[0])
	for j := range c.Env {
		if c.Env[j].Name == EnvStorageURI && c.Env[j].Value != "" {
			c.Env[j].Value = ModelPath
		}
	}
}

// restrict takes from a container what it does not need, where neither it nor
// its pod says otherwise. It is not forced to run as a user other than root,
// because images decide that for themselves.
func restrict(c *corev1.Container, pod *corev1.PodSecurityContext) {
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	s := c.SecurityContext
	if s.Privileged != nil && *s.Privileged {
		return
	}
	if s.AllowPrivilegeEscalation == nil {
		s.AllowPrivilegeEscalation = new(false)
	}
	if s.Capabilities == nil {
		s.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	}
	if s.SeccompProfile == nil && (pod == nil || pod.SeccompProfile == nil) {
		s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
}

// bundle are certificates that credentials ask for: a ConfigMap, and the file in
// it as the container sees it.
type bundle struct{ configMap, file string }

const (
	bundleVolume  = "cabundle-cert"
	globalBundle  = "global-ca-bundle"
	defaultBundle = "/etc/ssl/custom-certs"
)

// trust mounts the certificates of private storages. Outside the namespace of
// the configuration its bundle has a copy with a fixed name.
func (i *injector) trust(c *corev1.Container, own bundle) {
	cfg := i.Config.StorageInitializer
	if cfg.CABundleConfigMapName == "" && own.configMap == "" {
		return
	}
	name, place := cfg.CABundleConfigMapName, cfg.CABundleVolumeMountPath
	if i.Namespace != i.ConfigNamespace {
		name = globalBundle
	}
	if place == "" {
		place = defaultBundle
	}
	if own.configMap != "" {
		name = own.configMap
	}
	if path.IsAbs(own.file) {
		place = path.Dir(own.file)
	}
	defaultEnv(c,
		corev1.EnvVar{Name: "CA_BUNDLE_CONFIGMAP_NAME", Value: name},
		corev1.EnvVar{Name: "CA_BUNDLE_VOLUME_MOUNT_POINT", Value: place})
	addVolume(&i.pod.Volumes, corev1.Volume{Name: bundleVolume, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
	}})
	addMount(c, corev1.VolumeMount{Name: bundleVolume, MountPath: place, ReadOnly: true})
}
