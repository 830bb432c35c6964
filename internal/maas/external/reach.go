// SPDX-License-Identifier: Apache-2.0

package external

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/gateways"
)

// endpoint is where a provider is.
type endpoint struct {
	host string
	port int32
	tls  bool
}

// endpointOf reads the port and whether there is TLS from the annotations of an object.
func endpointOf(host string, annotations map[string]string) (endpoint, *engine.Problem) {
	const https, maxPort = 443, 65535
	e := endpoint{host: strings.ToLower(host), port: https, tls: true}
	if text, given := annotations[AnnotationPort]; given {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 1 || n > maxPort {
			return e, engine.MustChange("InvalidPort", "The annotation %s is %q, which is no port. Give a number from 1 to 65535.", AnnotationPort, shortened(text))
		}
		e.port = int32(n)
	}
	if text, given := annotations[AnnotationTLS]; given {
		on, err := strconv.ParseBool(text)
		if err != nil {
			return e, engine.MustChange("InvalidTLS", "The annotation %s is %q. Set it to true or false.", AnnotationTLS, shortened(text))
		}
		e.tls = on
	}
	return e, nil
}

func shortened(text string) string {
	const enough = 40
	if len(text) > enough {
		return strings.ToValidUTF8(text[:enough], "") + "…"
	}
	return text
}

// scheme is the name of the port, by which gateways know what is spoken.
func (e endpoint) scheme() string {
	if e.tls {
		return "https"
	}
	return "http"
}

// backend is a name to which routes can send requests.
type backend struct {
	flavour gateways.Flavour
	meta    metav1.ObjectMeta
	endpoint
}

// serviceName is the name of the Service for an object: its own if a Service can have it.
func serviceName(name string) string {
	const longest = 63
	if len(validation.IsDNS1035Label(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	mark := "-" + hex.EncodeToString(sum[:4])
	plain := strings.Map(func(r rune) rune {
		if r == '.' {
			return '-'
		}
		return r
	}, name)
	if len(validation.IsDNS1035Label(plain)) != 0 && len(plain) <= longest {
		plain = "x" + plain
	}
	return strings.TrimRight(plain[:min(len(plain), longest-len(mark))], "-") + mark
}

// ref is how a route names the backend.
func (b backend) ref() map[string]any {
	out := map[string]any{"name": b.meta.Name, "port": int64(b.port)}
	if b.flavour == gateways.EnvoyGateway {
		out["group"], out["kind"] = gateways.Backend.Group, gateways.Backend.Kind
	}
	return out
}

// children make the name known. Which ones depends on who implements the gateway: Istio must be told of a host outside the
// mesh, Envoy Gateway has a kind for it, and others take the Service with the policy that the Gateway API has for TLS.
func (b backend) children() []engine.Child {
	switch b.flavour {
	case gateways.EnvoyGateway:
		return []engine.Child{{Object: b.envoyBackend()}}
	case gateways.Istio:
		out := []engine.Child{{Object: b.service()}, {Object: b.serviceEntry()}}
		if b.tls {
			out = append(out, engine.Child{Object: b.destinationRule()})
		}
		return out
	}
	out := []engine.Child{{Object: b.service()}}
	if b.tls {
		out = append(out, engine.Child{Object: b.tlsPolicy(), Stage: 1})
	}
	return out
}

func (b backend) service() client.Object {
	return &corev1.Service{
		ObjectMeta: b.meta,
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: b.host,
			Ports: []corev1.ServicePort{{Name: b.scheme(), Port: b.port, TargetPort: intstr.FromInt32(b.port), Protocol: corev1.ProtocolTCP}}},
	}
}

func (b backend) serviceEntry() client.Object {
	return gateways.Object(gateways.ServiceEntry, b.meta, map[string]any{
		"hosts": []any{b.host}, "location": "MESH_EXTERNAL", "resolution": "DNS",
		"ports": []any{map[string]any{"number": int64(b.port), "name": b.scheme(), "protocol": strings.ToUpper(b.scheme())}},
	})
}

// destinationRule begins TLS at the gateway. Istio checks the certificate with the authorities of the system.
func (b backend) destinationRule() client.Object {
	return gateways.Object(gateways.DestinationRule, b.meta, map[string]any{
		"host":          b.host,
		"trafficPolicy": map[string]any{"tls": map[string]any{"mode": "SIMPLE", "sni": b.host, "subjectAltNames": []any{b.host}}},
	})
}

func (b backend) envoyBackend() client.Object {
	spec := map[string]any{"endpoints": []any{map[string]any{"fqdn": map[string]any{"hostname": b.host, "port": int64(b.port)}}}}
	if b.tls {
		spec["tls"] = map[string]any{"wellKnownCACertificates": "System", "sni": b.host}
	}
	return gateways.Object(gateways.Backend, b.meta, spec)
}

func (b backend) tlsPolicy() client.Object {
	return gateways.Object(gateways.BackendTLSPolicy, b.meta, map[string]any{
		"targetRefs": []any{map[string]any{"group": "", "kind": "Service", "name": b.meta.Name}},
		"validation": map[string]any{"hostname": b.host, "wellKnownCACertificates": "System"},
	})
}

// says tells in words how a provider is reached.
func (e endpoint) says() string {
	return fmt.Sprintf("%s://%s:%d", e.scheme(), e.host, e.port)
}
