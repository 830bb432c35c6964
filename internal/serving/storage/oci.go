// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/kube/address"
)

const (
	// maxImages bounds the sidecars of a pod.
	maxImages = 10
	ociPrefix = schemeOCI + "://"
	// modelDir is where an image that carries a model has it.
	modelDir = "models"

	modelcarName     = "modelcar"
	modelcarInitName = "modelcar-init"
	imageVolume      = "oci-model"
	fetchVolume      = "oci-fetch-model"

	authVolume = "kserve-oci-fetch-docker-config"
	authPlace  = "/mnt/oci-fetch-auth"
	authFile   = "config.json"
)

// ociMode tells in which mode an OCI image is mounted, and its address without
// the mode. The mode is empty for other addresses, and for plain OCI addresses
// where the configuration has no mode: these are downloaded like any other.
func ociMode(uri string, cfg config.StorageInitializer) (mode, plain string, err error) {
	scheme := schemeOf(uri)
	switch scheme {
	case schemeOCI:
		return cfg.EffectiveOCIMode(), uri, nil
	case schemeModelcar, schemeNative, schemeFetch:
	default:
		return "", uri, nil
	}
	if cfg.EffectiveOCIMode() == "" {
		return "", "", fmt.Errorf("%s: models in OCI images are turned off; set ociModelMode in key %s of ConfigMap %s, or use another address",
			address.Shown(uri), config.KeyStorageInitializer, config.Name)
	}
	return strings.TrimPrefix(scheme, schemeOCI+"+"), ociPrefix + strings.TrimPrefix(uri, scheme+"://"), nil
}

func (i *injector) sortImage(mode string, m v1beta1.StorageUri) {
	switch mode {
	case config.OCINative:
		i.images = append(i.images, m)
	case config.OCIFetch:
		i.fetch = append(i.fetch, m)
	default:
		i.modelcars = append(i.modelcars, m)
	}
}

// mountImages brings images without downloading: as volumes, or by sidecars
// that lend their file system.
func (i *injector) mountImages() error {
	if n := len(i.modelcars) + len(i.images) + len(i.fetch); n > maxImages {
		return fmt.Errorf("storageUris: %d OCI images are too many, a pod may have %d; put several models into one image", n, maxImages)
	}
	for _, m := range i.images {
		name := placeVolume(i.pod, m.MountPath, imageVolume, corev1.VolumeSource{Image: &corev1.ImageVolumeSource{
			Reference: strings.TrimPrefix(m.Uri, ociPrefix), PullPolicy: corev1.PullIfNotPresent,
		}})
		if err := i.mount(corev1.VolumeMount{Name: name, MountPath: m.MountPath, SubPath: modelDir, ReadOnly: true}); err != nil {
			return err
		}
	}
	parents := map[string]string{}
	for n, m := range i.modelcars {
		parent := path.Dir(path.Clean(m.MountPath))
		if other, ok := parents[parent]; ok {
			return fmt.Errorf("storageUris: OCI images at %s and %s need different parent directories, because each fills its own; "+
				"mount them for example at /mnt/a/model and /mnt/b/model", other, m.MountPath)
		}
		if parent == "/" {
			return fmt.Errorf("storageUris: the OCI image at %s needs a directory above that is not the root; mount it for example at %s", m.MountPath, ModelPath)
		}
		parents[parent] = m.MountPath
		if err := i.addModelcar(n, parent, m); err != nil {
			return err
		}
	}
	return nil
}

// addModelcar runs the image beside the model server. Its file system is reached
// through the process table that the pod then shares.
func (i *injector) addModelcar(n int, parent string, m v1beta1.StorageUri) error {
	suffix := ""
	if n > 0 {
		suffix = "-" + strconv.Itoa(n)
	}
	volume := corev1.VolumeMount{Name: provisionVolume + suffix, MountPath: parent}
	addVolume(&i.pod.Volumes, corev1.Volume{Name: volume.Name, VolumeSource: emptyDir()})
	if err := i.mount(volume); err != nil {
		return err
	}
	i.pod.ShareProcessNamespace = new(true)
	uid := i.Config.StorageInitializer.UIDModelcar
	for _, name := range i.targets {
		c := container(i.pod.Containers, name)
		// The server may have to wait for its model.
		setEnv(c, corev1.EnvVar{Name: "MODEL_INIT_MODE", Value: "async"})
		runAs(c, uid)
	}
	if container(i.pod.Containers, modelcarName+suffix) != nil {
		return nil
	}
	image := strings.TrimPrefix(m.Uri, ociPrefix)
	car := i.modelcar(modelcarName+suffix, image,
		"ln -sfn /proc/$$$$/root/"+modelDir+" "+shellQuote(path.Clean(m.MountPath))+" && exec sleep infinity")
	addMount(&car, volume)
	runAs(&car, uid)
	check := i.modelcar(modelcarInitName+suffix, image,
		`[ -n "$$(ls -A /`+modelDir+` 2>/dev/null)" ] || { echo `+
			shellQuote("The image "+image+" has no files in /"+modelDir+"; put the model there and push the image again.")+`; exit 1; }`)
	i.hideToken(&car)
	i.hideToken(&check)
	i.pod.Containers = append(i.pod.Containers, car)
	i.pod.InitContainers = append(i.pod.InitContainers, check)
	return nil
}

// Where Kubernetes mounts the token of a service account, and what hides it.
const (
	tokenPlace = "/var/run/secrets/kubernetes.io/serviceaccount"
	noToken    = "no-token"
)

// hideToken keeps the token of the service account, which the server may have asked for, from the shell of an image that
// carries a model: Kubernetes mounts it only where nothing is mounted yet.
func (i *injector) hideToken(c *corev1.Container) {
	if mounted := i.pod.AutomountServiceAccountToken; i.AsBefore || mounted != nil && !*mounted {
		return
	}
	addVolume(&i.pod.Volumes, corev1.Volume{Name: noToken, VolumeSource: emptyDir()})
	addMount(c, corev1.VolumeMount{Name: noToken, MountPath: tokenPlace, ReadOnly: true})
}

func (i *injector) modelcar(name, image, script string) corev1.Container {
	cfg := i.Config.StorageInitializer
	size := config.Resources{CPURequest: cfg.CPUModelcar, CPULimit: cfg.CPUModelcar, MemoryRequest: cfg.MemoryModelcar, MemoryLimit: cfg.MemoryModelcar}
	c := corev1.Container{
		Name:                     name,
		Image:                    image,
		Args:                     []string{"sh", "-c", script},
		Resources:                size.Requirements(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	restrict(&c, i.pod.SecurityContext)
	return c
}

// shellQuote makes one word of a text, for a shell behind Kubernetes, which
// replaces $(NAME) and reads $$ as $.
func shellQuote(text string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "$", "$$").Replace(text) + "'"
}

// runAs sets the user of a container and nothing else of its security context:
// processes of one user see each other's files.
func runAs(c *corev1.Container, uid *int64) {
	if uid == nil {
		return
	}
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	c.SecurityContext.RunAsUser = new(*uid)
}

// fetchImages downloads images with the init container, with the credentials
// that nodes pull images with.
func (i *injector) fetchImages() error {
	if len(i.fetch) == 0 || container(i.pod.InitContainers, InitializerName) != nil {
		return nil
	}
	over, err := i.pick(i.fetch)
	if err != nil {
		return err
	}
	c := i.initializer(i.fetch)
	for _, m := range i.fetch {
		volume := corev1.VolumeMount{Name: placeVolume(i.pod, m.MountPath, fetchVolume, emptyDir()), MountPath: m.MountPath}
		addMount(&c, volume)
		if err := i.mount(volume); err != nil {
			return err
		}
	}
	i.registryAuth(&c)
	if i.Config.StorageInitializer.OCIInsecureRegistry {
		setEnv(&c, corev1.EnvVar{Name: "KSERVE_OCI_INSECURE_REGISTRY", Value: trueValue})
	}
	i.confide(&c)
	if err := i.finish(&c, over, bundle{}); err != nil {
		return err
	}
	i.pod.InitContainers = append(i.pod.InitContainers, c)
	return nil
}

// registryAuth mounts the first image pull secret. Everybody in the container
// may read it, because the downloader is not root and nobody else is in there.
func (i *injector) registryAuth(c *corev1.Container) {
	secrets := i.pod.ImagePullSecrets
	if len(secrets) == 0 && i.Secrets.ServiceAccount != nil {
		secrets = i.Secrets.ServiceAccount.ImagePullSecrets // as Kubernetes fills them in
	}
	if len(secrets) == 0 {
		return
	}
	addVolume(&i.pod.Volumes, corev1.Volume{Name: authVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName:  secrets[0].Name,
		Items:       []corev1.KeyToPath{{Key: corev1.DockerConfigJsonKey, Path: authFile}},
		DefaultMode: new(int32(0o444)),
	}}})
	addMount(c, corev1.VolumeMount{Name: authVolume, MountPath: authPlace, ReadOnly: true})
	setEnv(c, corev1.EnvVar{Name: "KSERVE_OCI_DOCKER_CONFIG", Value: authPlace + "/" + authFile})
}

// FromImage is true for a single model in an OCI image, in whatever mode.
func (s Source) FromImage() bool {
	scheme := schemeOf(s.URI)
	return scheme == schemeOCI || strings.HasPrefix(scheme, schemeOCI+"+")
}

// WithImageVolumes has plain OCI addresses mounted by Kubernetes itself, so that nothing of the image runs.
func (s Source) WithImageVolumes() Source {
	native := func(uri string) string {
		if rest, ok := strings.CutPrefix(uri, ociPrefix); ok {
			return schemeNative + "://" + rest
		}
		return uri
	}
	s.URI, s.URIs = native(s.URI), slices.Clone(s.URIs)
	for i := range s.URIs {
		s.URIs[i].Uri = native(s.URIs[i].Uri)
	}
	return s
}

// BesideServer tells whether a model of the source comes in an image that runs beside the server.
func BesideServer(s Source, cfg config.StorageInitializer) bool {
	return slices.ContainsFunc(s.models(), func(m v1beta1.StorageUri) bool {
		mode, _, err := ociMode(m.Uri, cfg)
		return err == nil && mode == config.OCIModelcar
	})
}

// AsImageVolume tells whether a model of the source is mounted as an image by
// Kubernetes itself.
func AsImageVolume(s Source, cfg config.StorageInitializer) bool {
	return slices.ContainsFunc(s.models(), func(m v1beta1.StorageUri) bool {
		mode, _, err := ociMode(m.Uri, cfg)
		return err == nil && mode == config.OCINative
	})
}
