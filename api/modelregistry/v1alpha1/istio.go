// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Istio is a registry's former service mesh settings.
type Istio struct {
	// Name of the mesh's authorization provider.
	// +optional
	AuthProvider string `json:"authProvider,omitempty"`

	// Labels by which the authorization provider finds its settings.
	// +optional
	AuthConfigLabels map[string]string `json:"authConfigLabels,omitempty"`

	// How connections inside the mesh are protected.
	// +optional
	// +kubebuilder:default=ISTIO_MUTUAL
	TLSMode string `json:"tlsMode,omitempty"`

	// Gateway of the mesh in front of the registry; none when absent.
	// +optional
	Gateway *Gateway `json:"gateway,omitempty"`

	// Audiences for which tokens must have been made out.
	// +optional
	Audiences []string `json:"audiences,omitempty"`
}

// Gateway is a gateway of the mesh in front of a registry.
type Gateway struct {
	// Domain of the gateway; that of the cluster when empty.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9]))*)?$`
	Domain string `json:"domain,omitempty"`

	// Value of the label istio by which the ingress is found.
	// +optional
	IstioIngress *string `json:"istioIngress,omitempty"`

	// Name of the mesh's control plane.
	// +optional
	ControlPlane *string `json:"controlPlane,omitempty"`

	// Entrance for REST.
	// +required
	Rest GatewayServer `json:"rest"`

	// Entrance for gRPC.
	// +required
	Grpc GatewayServer `json:"grpc"`
}

// GatewayServer is one entrance of a gateway.
type GatewayServer struct {
	// Port of the entrance.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// Protection of the entrance; plain text when absent.
	// +optional
	TLS *GatewayTLS `json:"tls,omitempty"`

	// Whether an OpenShift Route leads to the entrance.
	// +optional
	GatewayRoute Toggle `json:"gatewayRoute,omitempty"`
}

// GatewayTLS is the protection of an entrance.
type GatewayTLS struct {
	// Who shows a certificate to whom.
	// +optional
	// +kubebuilder:default=SIMPLE
	// +kubebuilder:validation:Enum=SIMPLE;MUTUAL;ISTIO_MUTUAL;OPTIONAL_MUTUAL
	Mode string `json:"mode,omitempty"`

	// Secret with the certificates.
	// +optional
	CredentialName *string `json:"credentialName,omitempty"`
}
