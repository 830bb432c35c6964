// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxSteps is more than a whole rotation takes; it ends a struggle with somebody who writes as fast as we do.
const maxSteps = 12

// errContended says that others kept writing the Secret.
var errContended = errors.New("the certificate Secret is being written by somebody else over and over")

// syncSelf brings the process and the cluster in line with the Secret and takes the steps that are due. In the steady
// state it reads memory only; whatever is to be written is decided again on the live Secret, since a replica whose watch
// lags behind would otherwise take back what another has just written.
func (k *Keeper) syncSelf(ctx context.Context) (time.Time, error) {
	secret, err := k.readSecret(ctx, k.cache)
	if err != nil {
		return time.Time{}, err
	}
	s, carried, _ := k.load(secret)
	due, at := s.next(k.opts.Clock.Now(), k.opts.Lifetimes, k.hosts())
	if due == stepNone && !carried {
		k.serve(s)
		done, err := k.injector.done(ctx, k.cache, encodeCertificates(s.roots))
		if err != nil {
			return time.Time{}, err
		}
		if done {
			k.injected.Store(true)
			return at, nil
		}
	}
	for range maxSteps {
		at, done, err := k.advance(ctx)
		switch {
		case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
			continue // another replica was faster; read what it wrote
		case err != nil || done:
			return at, err
		}
	}
	return time.Time{}, errContended
}

// advance takes one step on the live Secret, or none when nothing is due any more.
func (k *Keeper) advance(ctx context.Context) (at time.Time, done bool, err error) {
	secret, err := k.readSecret(ctx, k.client)
	if err != nil {
		return time.Time{}, false, err
	}
	s, carried, problem := k.load(secret)
	now := k.opts.Clock.Now()
	due, at := s.next(now, k.opts.Lifetimes, k.hosts())
	if due == stepNone && !carried {
		return at, true, k.use(ctx, s)
	}
	if problem != nil && due == stepReplace {
		k.opts.Log.Info("The certificate Secret holds something unusable and is repaired", "problem", problem.Error())
	}
	k.serve(s)
	next, err := k.take(ctx, due, s, now)
	if err != nil {
		return time.Time{}, false, err
	}
	if err := k.writeSecret(ctx, secret, next); err != nil {
		return time.Time{}, false, err
	}
	if due != stepNone {
		rotationSteps.WithLabelValues(string(due)).Inc()
		k.opts.Log.Info("Took a step of certificate rotation", "step", due, "roots", len(next.roots),
			"authorityExpires", next.signer.cert.NotAfter)
	}
	return time.Time{}, false, nil
}

// take computes the state after a step. Confirming trust is the only step that needs the cluster.
func (k *Keeper) take(ctx context.Context, due step, s state, now time.Time) (state, error) {
	switch due {
	case stepReplace:
		if len(s.roots) == 0 {
			roots, err := k.rootsInUse(ctx)
			if err != nil {
				return state{}, err
			}
			s.roots = roots
		}
		return s.replaceAuthority(now, k.opts.Lifetimes)
	case stepTrust:
		if err := k.injector.ensure(ctx, k.client, encodeCertificates(s.roots)); err != nil {
			return state{}, err
		}
		s.trusted = k.opts.Clock.Now() // later than now, after all those writes
		return s, nil
	case stepIssue:
		return s.issue(now, k.opts.Lifetimes, k.hosts())
	case stepServe:
		s.served = now // read after the Secret was
		return s, nil
	case stepRetire:
		return s.retire(now, k.opts.Lifetimes), nil
	}
	return s, nil
}

// rootsInUse is what the API server trusts when no Secret remembers it: another replica may be serving a certificate
// that depends on it.
func (k *Keeper) rootsInUse(ctx context.Context) ([]*x509.Certificate, error) {
	bundles, err := k.injector.bundles(ctx, k.client)
	if err != nil {
		return nil, err
	}
	var roots []*x509.Certificate
	for _, bundle := range bundles {
		certs, err := decodeCertificates(bundle)
		if err != nil {
			continue // nothing that could be trusted
		}
		for _, cert := range certs {
			if !contains(roots, cert) && len(roots) < maxRoots {
				roots = append(roots, cert)
			}
		}
	}
	return roots, nil
}

// load reads the state and carries over what this replica serves where the Secret lost it.
func (k *Keeper) load(secret *corev1.Secret) (s state, carried bool, problem error) {
	now := k.opts.Clock.Now()
	s, problem = decode(secret.Data, now)
	current := k.slot.get()
	s, carried = s.carry(current.cert, current.root, now)
	return s, carried, problem
}

// use serves what the state says and repairs what the API server trusts.
func (k *Keeper) use(ctx context.Context, s state) error {
	k.serve(s)
	if err := k.injector.ensure(ctx, k.cache, encodeCertificates(s.roots)); err != nil {
		return err
	}
	k.injected.Store(true)
	return nil
}

func (k *Keeper) serve(s state) {
	if s.serving == nil {
		return
	}
	root := issuerOf(s.serving.Leaf, s.roots, k.opts.Clock.Now())
	if k.slot.swap(served{cert: s.serving, root: root}) {
		k.opts.Log.Info("Serving a new certificate", "serial", s.serving.Leaf.SerialNumber.Text(16),
			"expires", s.serving.Leaf.NotAfter)
	}
}

// readSecret returns an empty Secret without a resource version when there is none.
func (k *Keeper) readSecret(ctx context.Context, reader client.Reader) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: k.opts.Namespace, Name: k.opts.Secret}
	err := reader.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace,
				Name:      key.Name,
				Labels:    map[string]string{PartOfLabel: PartOfValue},
			},
			Type: corev1.SecretTypeTLS,
		}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	return secret, nil
}

// writeSecret creates or updates; the resource version of what was read decides who wins.
func (k *Keeper) writeSecret(ctx context.Context, secret *corev1.Secret, s state) error {
	data, err := s.encode()
	if err != nil {
		return err
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for key, value := range data {
		secret.Data[key] = value
	}
	if secret.ResourceVersion == "" {
		err = k.client.Create(ctx, secret, fieldOwner)
	} else {
		err = k.client.Update(ctx, secret, fieldOwner)
	}
	if err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}
