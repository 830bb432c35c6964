// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

const (
	// Provisioner is what a StorageClass names to get volumes from here.
	Provisioner = "modelplane.dev/local"
	// sharedParameter of a class names a directory that all of its claims read, instead of one for each.
	sharedParameter = "path"

	// The controller manager writes down on a claim who is to make its volume, and on a volume who has to remove it.
	askedOf = "volume.kubernetes.io/storage-provisioner"
	madeBy  = "pv.kubernetes.io/provisioned-by"
)

// volumes makes and removes directories.
type volumes struct {
	client  kubernetes.Interface
	dir     string
	sources informers.SharedInformerFactory
	claims  corelisters.PersistentVolumeClaimLister
	made    corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister
	events  record.EventRecorder
	tell    record.EventBroadcaster
}

func newVolumes(client kubernetes.Interface, dir string) *volumes {
	sources := informers.NewSharedInformerFactory(client, 0)
	tell := record.NewBroadcaster()
	return &volumes{
		client: client, dir: dir, sources: sources, tell: tell,
		claims:  sources.Core().V1().PersistentVolumeClaims().Lister(),
		made:    sources.Core().V1().PersistentVolumes().Lister(),
		classes: sources.Storage().V1().StorageClasses().Lister(),
		events:  tell.NewRecorder(scheme.Scheme, corev1.EventSource{Component: Provisioner}),
	}
}

func (v *volumes) run(ctx context.Context, ready func()) error {
	v.tell.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: v.client.CoreV1().Events("")})
	defer v.tell.Shutdown()
	return lookAfterChanges(ctx, v.sources, []cache.SharedIndexInformer{
		v.sources.Core().V1().PersistentVolumeClaims().Informer(),
		v.sources.Core().V1().PersistentVolumes().Informer(),
		v.sources.Storage().V1().StorageClasses().Informer(),
	}, ready, v.look, "Not every claim has its volume")
}

// look makes what is missing and removes what nobody claims any more. One that fails keeps no other waiting.
func (v *volumes) look(ctx context.Context) error {
	claims, err := v.claims.List(labels.Everything())
	if err != nil {
		return err
	}
	var failures []error
	for _, claim := range claims {
		if claim.Spec.VolumeName != "" || claim.Spec.StorageClassName == nil || claim.DeletionTimestamp != nil || claim.Annotations[askedOf] != Provisioner {
			continue
		}
		if err := v.provide(ctx, claim); err != nil {
			failures = append(failures, fmt.Errorf("claim %s of %s: %w", claim.Name, claim.Namespace, err))
			v.events.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", err.Error())
		}
	}
	made, err := v.made.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, volume := range made {
		if volume.Annotations[madeBy] != Provisioner || volume.Status.Phase != corev1.VolumeReleased || volume.DeletionTimestamp != nil ||
			volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			continue
		}
		if err := v.remove(ctx, volume); err != nil {
			failures = append(failures, fmt.Errorf("volume %s: %w", volume.Name, err))
		}
	}
	return errors.Join(failures...)
}

// provide makes a volume for one claim. Its name follows from the claim, so that doing it twice makes one.
func (v *volumes) provide(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	class, err := v.classes.Get(*claim.Spec.StorageClassName)
	if err != nil {
		return err
	}
	name := "pvc-" + string(claim.UID)
	path, err := v.directory(class, claim, name)
	if err != nil {
		return err
	}
	kind := corev1.HostPathDirectory
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{madeBy: Provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              class.Name,
			MountOptions:                  class.MountOptions,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}},
		},
	}
	if class.ReclaimPolicy != nil {
		volume.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
	_, err = v.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// directory is the one that all claims of a class share, or a new one that pods of every user can write to.
func (v *volumes) directory(class *storagev1.StorageClass, claim *corev1.PersistentVolumeClaim, name string) (string, error) {
	if mode := claim.Spec.VolumeMode; mode != nil && *mode != corev1.PersistentVolumeFilesystem {
		return "", fmt.Errorf("volumes of class %s are directories; ask for volumeMode Filesystem", class.Name)
	}
	if shared := class.Parameters[sharedParameter]; shared != "" {
		reads := func(mode corev1.PersistentVolumeAccessMode) bool { return mode == corev1.ReadOnlyMany }
		if !slices.ContainsFunc(claim.Spec.AccessModes, reads) || len(claim.Spec.AccessModes) != 1 {
			return "", fmt.Errorf("all claims of class %s read the same directory; ask for the access mode ReadOnlyMany alone", class.Name)
		}
		return shared, nil
	}
	path := filepath.Join(v.dir, name)
	return path, errors.Join(os.MkdirAll(v.dir, 0o700), makeFor(path, 0o777))
}

// makeFor makes a directory with these permissions, whatever the umask is.
func makeFor(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(path, mode)
}

// remove takes a directory away with its volume. One that was not made here stays.
func (v *volumes) remove(ctx context.Context, volume *corev1.PersistentVolume) error {
	own := filepath.Join(v.dir, volume.Name)
	if volume.Spec.HostPath != nil && volume.Spec.HostPath.Path == own {
		if err := os.RemoveAll(own); err != nil {
			return err
		}
	}
	err := v.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &volume.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
