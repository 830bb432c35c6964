// SPDX-License-Identifier: Apache-2.0

package predictors

import (
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelmesh/client"
	"github.com/modelplane/modelplane/internal/modelmesh/model"
	"github.com/modelplane/modelplane/internal/modelmesh/settings"
)

// Seen is what the decision about an object depends on.
type Seen struct {
	Now      time.Time
	Platform Platform
	// Enabled says that the namespace has a mesh, and Mesh how it is reached. Broken is why it, or its records, cannot be.
	Enabled bool
	Mesh    client.Mesh
	Broken  string
	// Connected says that there is a connection to it.
	Connected bool
	// Last is what the mesh said last, if Asked, and View what its records say. Told says that these tell when a load ends.
	Asked bool
	Last  client.Answer
	View  client.View
	Told  bool
	// Set, Status and Deleted are what came of the calls.
	Set, Status, Deleted engine.Answer
	// Patient says that a mesh which fails may still come back in time for the end of the object.
	Patient bool
}

// observe reads the same for both kinds.
func (d *Domain) observe(ctx context.Context, r engine.Reader, source model.Source, obj kubeclient.Object) (Seen, error) {
	seen := Seen{Now: d.now()}
	var err error
	if seen.Platform, err = d.settings(ctx, r); err != nil || seen.Platform.Problem != nil {
		return seen, err
	}
	if seen.Enabled, err = d.enabled(ctx, r, obj.GetNamespace(), seen.Platform); err != nil {
		return seen, err
	}
	seen.Mesh = client.Mesh{Namespace: obj.GetNamespace(), Service: seen.Platform.Service}
	if err := seen.pods(ctx, r); err != nil {
		return seen, err
	}
	if err := seen.secrets(ctx, r); err != nil {
		return seen, err
	}
	of, key := kubeclient.ObjectKeyFromObject(obj), string(obj.GetUID())
	seen.Last, seen.Asked = d.mesh.Last(source, of)
	seen.Connected = d.mesh.Connected(of.Namespace)
	if !seen.Mesh.Alone {
		seen.View, seen.Told = d.mesh.View(source, of), d.mesh.Told(of.Namespace)
	}
	seen.Set, seen.Status, seen.Deleted = r.Answer(client.CallSet, key), r.Answer(client.CallStatus, key), r.Answer(client.CallDelete, key)
	if end := obj.GetDeletionTimestamp(); end != nil {
		seen.Patient = seen.Now.Sub(end.Time) < d.patience
	}
	return seen, nil
}

// enabled looks at the namespace. Where there is none to look at, as without a cluster, nothing speaks against it.
func (d *Domain) enabled(ctx context.Context, r engine.Reader, name string, p Platform) (bool, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := r.Get(ctx, types.NamespacedName{Name: name}, ns)
	if err == nil {
		return p.Enabled(ns), nil
	}
	return true, kubeclient.IgnoreNotFound(err)
}

// grpcPort is what the port is called in Services of meshes.
const grpcPort = "grpc"

// pods finds the addresses of the mesh.
func (s *Seen) pods(ctx context.Context, r engine.Reader) error {
	if s.Platform.Endpoint != "" {
		s.Mesh.Addresses = []string{s.Platform.Endpoint}
		return nil
	}
	list := &discoveryv1.EndpointSliceList{}
	err := r.List(ctx, list, kubeclient.InNamespace(s.Mesh.Namespace), kubeclient.MatchingLabels{discoveryv1.LabelServiceName: s.Platform.Service})
	if err != nil {
		return err
	}
	for _, slice := range list.Items {
		port := s.Platform.Port
		for _, p := range slice.Ports {
			if p.Name != nil && *p.Name == grpcPort && p.Port != nil {
				port = *p.Port
			}
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 {
				continue
			}
			s.Mesh.Addresses = append(s.Mesh.Addresses, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(port))))
		}
	}
	slices.Sort(s.Mesh.Addresses)
	s.Mesh.Addresses = slices.Compact(s.Mesh.Addresses)
	return nil
}

// secrets finds out how the mesh and its records are spoken to.
func (s *Seen) secrets(ctx context.Context, r engine.Reader) error {
	if name := s.Platform.TLSSecret; name != "" {
		secret := &corev1.Secret{}
		err := r.GetUncached(ctx, types.NamespacedName{Namespace: s.Platform.Home, Name: name}, secret)
		if kubeclient.IgnoreNotFound(err) != nil {
			return err
		}
		s.takeTLS(name, secret, err == nil)
	}
	home := s.Platform.Home
	own := &metav1.PartialObjectMetadata{}
	own.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Get(ctx, types.NamespacedName{Namespace: s.Mesh.Namespace, Name: s.Platform.EtcdSecret}, own)
	if kubeclient.IgnoreNotFound(err) != nil {
		return err
	}
	if s.Mesh.Alone = err == nil && s.Mesh.Namespace != home && settings.OwnConnection(own); s.Mesh.Alone { // its records lie where those of a home do
		home = s.Mesh.Namespace
	}
	secret := &corev1.Secret{}
	if err = r.GetUncached(ctx, types.NamespacedName{Namespace: home, Name: s.Platform.EtcdSecret}, secret); err != nil {
		return kubeclient.IgnoreNotFound(err)
	}
	// One that cannot be used is told of by those who run the mesh with it; without it the mesh is asked now and then.
	if etcd, err := client.ReadEtcd(secret.Data, home, s.Platform.Service); err == nil {
		s.Mesh.Etcd = etcd
	}
	return nil
}

func (s *Seen) takeTLS(name string, secret *corev1.Secret, there bool) {
	if !there {
		s.Broken = "Secret " + name + " in namespace " + s.Platform.Home + " is missing, with which the mesh is reached. Create it, or correct tls.secretName."
		return
	}
	certificate, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	roots := slices.Concat(certificate, []byte("\n"), secret.Data["ca.crt"])
	if !s.Platform.ClientAuth {
		certificate, key = nil, nil
	}
	s.Mesh.TLS = client.NewTLS(roots, certificate, key)
}
