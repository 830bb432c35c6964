// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/internal/engine"
)

// LabelEnabled on a namespace says with the value "true" that multi-model runtimes run there.
const LabelEnabled = "modelmesh-enabled"

// Environment variables that the platform is known from.
const (
	EnvPodImage   = "MODELPLANE_POD_IMAGE"
	EnvEtcdSecret = "ETCD_SECRET_NAME" //nolint:gosec // a name
)

// Platform is what the process is told when it starts.
type Platform struct {
	// Namespace of the manager.
	Namespace string
	// Watched are the namespaces that are looked after; all if empty.
	Watched []string
	// PodImage has the programs that run beside a runtime.
	PodImage string
	// EtcdSecret is the Secret in the manager's namespace with the connection to etcd.
	EtcdSecret string
}

// FromEnv reads the platform of a manager that runs in a namespace.
func FromEnv(getenv func(string) string, namespace string, watched []string) Platform {
	return Platform{Namespace: namespace, Watched: watched, PodImage: getenv(EnvPodImage), EtcdSecret: getenv(EnvEtcdSecret)}
}

func (p Platform) withDefaults() Platform {
	p.Namespace = cmp.Or(p.Namespace, "modelplane-system")
	p.PodImage = cmp.Or(p.PodImage, "modelplane-pod:dev")
	p.EtcdSecret = cmp.Or(p.EtcdSecret, "model-serving-etcd")
	return p
}

// Enabled tells whether multi-model runtimes run in a namespace: where its label says so, and without a label in the
// manager's own. One that is being deleted has none.
func (p Platform) Enabled(namespace metav1.Object) bool {
	if namespace.GetDeletionTimestamp() != nil || len(p.Watched) > 0 && !slices.Contains(p.Watched, namespace.GetName()) {
		return false
	}
	label, said := namespace.GetLabels()[LabelEnabled]
	return label == "true" || !said && namespace.GetName() == p.Namespace
}

// EtcdSecretName is the name of the Secret with the connection to etcd, in every namespace.
func (p Platform) EtcdSecretName(s *Settings) string { return cmp.Or(s.EtcdSecretName, p.EtcdSecret) }

// OwnConnection tells whether a namespace has brought the Secret with the connection to etcd itself: neither we nor the controller
// that is known from elsewhere have made it.
func OwnConnection(secret metav1.Object) bool {
	labels := secret.GetLabels()
	return labels[engine.LabelOwner] == "" && labels["app.kubernetes.io/managed-by"] != "modelmesh-controller"
}
