// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/pass"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// The Secret with the key of passes is beside maas-api, which mounts it here.
const (
	passKeyName = "maas-api-pass-key"
	passKeyDir  = "/etc/modelplane/pass"
	passKeyKey  = "key"
)

// Passes are what those who check requests for Kuadrant show maas-api.
type Passes struct {
	// Key signs them: that of the Secret, or a new one where there is none. Made says that the Secret has it.
	Key  string
	Made bool
	// Home is the namespace in which Kuadrant looks for them, empty where there is no Kuadrant.
	Home string
}

// readPasses looks for the key that signs passes, and makes one where there is none.
func (k Kind) readPasses(ctx context.Context, r engine.Reader, _ *v1alpha1.MaasTenantConfig, seen *Seen) (err error) {
	if seen.Passes.Home, err = tenancy.KuadrantHome(ctx, r); err != nil {
		return err
	}
	secret := &corev1.Secret{}
	err = r.GetUncached(ctx, client.ObjectKey{Namespace: k.InfraNamespace, Name: naming.OfTenant(passKeyName, seen.Tenant)}, secret)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return err
	case err == nil:
		seen.Passes.Key, seen.Passes.Made = string(secret.Data[passKeyKey])+secret.StringData[passKeyKey], true
	case k.Pairs != nil:
		seen.Passes.Key = pass.NewKey()
	}
	return nil
}

// passKey is made once, and may be replaced by whoever looks after the cluster. One that somebody deletes does not come back:
// what it has signed is not to be good any more.
func (p *planner) passKey() {
	secret := &corev1.Secret{ObjectMeta: p.infra(apiName, passKeyName)}
	if !p.seen.Passes.Made {
		secret.Data = map[string][]byte{passKeyKey: []byte(p.seen.Passes.Key)}
	}
	p.add(0, secret)
	last := &p.children[len(p.children)-1]
	last.CreateOnly, last.Unmanaged, last.Adopt = true, p.seen.Passes.Made, false
}

// mountsPassKey lets maas-api check passes.
func (p *planner) mountsPassKey(c *corev1.Container) corev1.Volume {
	c.Env = append(c.Env, corev1.EnvVar{Name: "INTERNAL_KEY_FILE", Value: passKeyDir + "/" + passKeyKey})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "pass", MountPath: passKeyDir, ReadOnly: true})
	return corev1.Volume{Name: "pass", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: p.name(passKeyName)}}}
}

// passes are put where Kuadrant reads them, with what it must trust to be maas-api. The one of the period before stays, because
// the policy of the gateway may still name it. A Secret is never changed: another pass is another Secret, by whose name Authorino
// learns that it has to read again.
func (p *planner) passes() {
	home := p.seen.Passes.Home
	if !p.shows() || home == "" {
		return
	}
	trusted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: caName(p.name(apiName)), Labels: p.labels(apiName)},
		Data:       map[string]string{p.name(apiName) + ".crt": string(p.seen.API.Pair.Roots)},
	}
	p.add(1, trusted)
	if !p.seen.Passes.Made {
		return // the Secret wakes us
	}
	keys, err := pass.ParseKeys(p.seen.Passes.Key)
	if err != nil {
		p.warnings = append(p.warnings, warning{reason: "PassKeyUnusable", message: fmt.Sprintf(
			"Secret %s/%s has no key for passes (%v), so that nobody can ask maas-api for Kuadrant. Delete it; a new one is made.", p.InfraNamespace, p.name(passKeyName), err)})
		return
	}
	period, _ := pass.Now(p.seen.Now)
	for _, n := range []int64{period - 1, period} {
		shown := keys[0].Of(p.seen.Tenant, n)
		meta := metav1.ObjectMeta{Namespace: home, Name: p.name("maas-api-pass") + "-" + naming.Digest(shown), Labels: p.labels(apiName)}
		meta.Labels[naming.LabelPass] = strconv.FormatInt(n, 10)
		p.add(1, &corev1.Secret{ObjectMeta: meta, Immutable: ptr.To(true), Data: map[string][]byte{kuadrant.PassKey: []byte(shown)}})
	}
}

// nextPass is when another pass is to be made.
func (p *planner) nextPass() time.Duration {
	if !p.shows() || !p.seen.Passes.Made || p.seen.Passes.Home == "" {
		return 0
	}
	_, left := pass.Now(p.seen.Now)
	return left + time.Second
}
