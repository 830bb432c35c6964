// SPDX-License-Identifier: Apache-2.0

package graphs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/ingress"
)

// What a graph asks for by itself; the platform's configuration can ask for it on behalf of all.
const (
	annotationAuth = "security.opendatahub.io/enable-auth"
	annotationTLS  = "modelplane.dev/router-tls"
	// annotationServingCert lets OpenShift make the certificate.
	annotationServingCert = "service.beta.openshift.io/serving-cert-secret-name"
)

// How the router is told, and where it finds what it needs.
const (
	argTLS, argAuth, argName = "--enable-tls", "--enable-auth", "--inferencegraph-name"
	volumeTLS, pathTLS       = "serving-cert", "/etc/tls/private"
	volumeCA, pathCA         = "ca-bundle", "/etc/modelplane/ca"
	fileCA                   = "ca.crt"
	// envTrust names a directory with authorities that a program trusts beside those of its system.
	envTrust = "SSL_CERT_DIR"
	portTLS  = 443
)

// protection is what a graph's router needs to be called, and to call others, in safety.
type protection struct {
	// Certificate tells whether the Secret with the router's certificate is there.
	Certificate bool
	// Bundle is what the ConfigMap with authorities holds that the platform names, if it is Found in Namespace.
	Bundle    map[string]string
	Found     bool
	Namespace string
}

func (o *observer) readProtection(ctx context.Context) error {
	if name := o.seen.Config.Router.CABundle; name != "" {
		cm, err := config.Content(ctx, o.Reader, o.seen.Protection.Namespace, name)
		if err != nil {
			return err
		}
		if cm != nil {
			o.seen.Protection.Found, o.seen.Protection.Bundle = true, cm.Data
		}
	}
	if !encrypted(o.graph, o.seen.Config) {
		return nil
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := o.Get(ctx, client.ObjectKey{Namespace: o.graph.Namespace, Name: certificateOf(o.graph)}, secret)
	o.seen.Protection.Certificate = err == nil
	return client.IgnoreNotFound(err)
}

// encrypted tells whether the router answers with TLS, guarded whether it asks who calls.
func encrypted(graph client.Object, cfg *config.Config) bool {
	return cfg.Router.EnableTLS || graph.GetAnnotations()[annotationTLS] == "true"
}

func guarded(graph client.Object, cfg *config.Config) bool {
	return cfg.Router.EnableAuth || graph.GetAnnotations()[annotationAuth] == "true"
}

// certificateOf is the Secret with the certificate of a router.
func certificateOf(graph client.Object) string { return graph.GetName() + "-serving-cert" }

// unprotected is why the router cannot be as safe as it shall be. A certificate is waited for with everything in place, because
// who makes it may need the Service for it; a router that is there goes on as it is.
func (p *planner) unprotected() *engine.Problem {
	cfg := p.seen.Config
	if name := cfg.Router.CABundle; name != "" && !p.seen.Protection.Found {
		return engine.WaitFor("RouterCABundleMissing", "ConfigMap %s/%s does not exist, but the platform's configuration (router.caBundle) names it. Create it with "+
			"the certificates of the authorities that routers of graphs shall trust.", p.seen.Protection.Namespace, name)
	} else if name != "" && authorities(p.seen.Protection.Bundle) == "" {
		return engine.WaitFor("RouterCABundleUnusable", "No value in ConfigMap %s/%s, which the platform's configuration names (router.caBundle), has a certificate in PEM. "+
			"Put the certificates of the authorities there that routers of graphs shall trust.", p.seen.Protection.Namespace, name)
	}
	if !encrypted(p.graph, cfg) {
		return nil
	}
	switch {
	case p.seen.Mode == config.ModeKnative:
		return engine.MustChange("RouterTLSUnsupported", "The router is to answer with TLS (annotation %s, or router.enableTls of the platform), but Knative "+
			"speaks to it without. Set the annotation serving.kserve.io/deploymentMode: Standard on a new graph, or do without TLS.", annotationTLS)
	case p.behindGateway():
		return engine.MustChange("RouterTLSUnsupported", "The router is to answer with TLS (annotation %s, or router.enableTls of the platform), but the Gateway "+
			"speaks to it without. Set the label networking.kserve.io/visibility: cluster-local, or do without TLS: the Gateway has its own.", annotationTLS)
	case !p.seen.Protection.Certificate:
		return engine.WaitFor(reasonNoCertificate, "The router is to answer with TLS, but Secret %s with its certificate (tls.crt, tls.key) does not exist. Create it, "+
			"for example with cert-manager, for the host %[3]s.%[4]s.svc. OpenShift makes it for a Service with the annotation %[2]s.",
			certificateOf(p.graph), annotationServingCert, p.graph.Name, p.graph.Namespace)
	}
	return nil
}

// reasonNoCertificate is that of the problem that is waited for so.
const reasonNoCertificate = "RouterCertificateMissing"

// behindGateway tells whether requests come to the router from a Gateway.
func (p *planner) behindGateway() bool {
	cfg := p.seen.Config
	return cfg.Ingress.EnableGatewayAPI && !cfg.Ingress.DisableIngressCreation && !ingress.ClusterLocal(outline(p.graph), cfg)
}

// protect equips the router's pod.
func (p *planner) protect(pod *corev1.PodSpec) {
	c := &pod.Containers[0]
	mount := func(name, path string, from corev1.VolumeSource) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: from})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
	}
	if encrypted(p.graph, p.seen.Config) {
		c.Args = append(c.Args, argTLS)
		c.ReadinessProbe.HTTPGet.Scheme = corev1.URISchemeHTTPS
		mount(volumeTLS, pathTLS, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: certificateOf(p.graph)}})
	}
	if guarded(p.graph, p.seen.Config) {
		c.Args = append(c.Args, argAuth, argName, p.graph.Name)
		pod.AutomountServiceAccountToken = ptr.To(true) // with which it asks whose a caller's token is
	}
	if bundle := p.bundle(); bundle != nil {
		// Programs read their authorities when they start: another content is another path, and so another pod.
		sum := sha256.Sum256([]byte(bundle.Data[fileCA]))
		path := pathCA + "/" + hex.EncodeToString(sum[:8])
		mount(volumeCA, path, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: bundle.Name}}})
		c.Env = append(c.Env, corev1.EnvVar{Name: envTrust, Value: path})
	}
}

// bundle is a copy of the authorities beside the graph, nil where the platform names none.
func (p *planner) bundle() *corev1.ConfigMap {
	all := authorities(p.seen.Protection.Bundle)
	if p.seen.Config.Router.CABundle == "" || all == "" {
		return nil
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.graph.Namespace, Name: p.graph.Name + "-router-ca", Labels: map[string]string{v1beta1.LabelInferenceGraph: p.graph.Name}},
		Data:       map[string]string{fileCA: all},
	}
}

// trusted is that copy as something to make.
func (p *planner) trusted() []engine.Child {
	if bundle := p.bundle(); bundle != nil {
		return []engine.Child{{Object: bundle}}
	}
	return nil
}

// authorities are the certificates among the values of a ConfigMap, each once, in the order of the keys. Nothing else that
// somebody may have put there is copied.
func authorities(data map[string]string) string {
	var out bytes.Buffer
	seen := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		rest := []byte(data[key])
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if _, err := x509.ParseCertificate(block.Bytes); err != nil || block.Type != "CERTIFICATE" || seen[string(block.Bytes)] {
				continue
			}
			seen[string(block.Bytes)] = true
			out.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
		}
	}
	return out.String()
}

// encrypt lets the router's Service be reached as the router answers.
func (p *planner) encrypt(service *corev1.Service) {
	if !encrypted(p.graph, p.seen.Config) {
		return
	}
	service.Annotations = maps.Clone(service.Annotations)
	if service.Annotations == nil {
		service.Annotations = map[string]string{}
	}
	service.Annotations[annotationServingCert] = certificateOf(p.graph)
	service.Spec.Ports[0].Name, service.Spec.Ports[0].Port, service.Spec.Ports[0].TargetPort = "https", portTLS, intstr.FromInt32(routerPort)
}

// urlOf is a URL of the router, which says how it answers.
func (p *planner) urlOf(url string) string {
	if rest, plain := strings.CutPrefix(url, "http://"); plain && encrypted(p.graph, p.seen.Config) {
		return "https://" + rest
	}
	return url
}
