// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// NameRef names an object of the same namespace.
type NameRef struct {
	// Name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9\-]*[a-z0-9])?$`
	Name string `json:"name"`
}

// AuthType is a way to sign in at a provider.
//
// +kubebuilder:validation:Enum=apikey;simple;sigv4;oauth2
type AuthType string

// The ways to sign in at a provider.
const (
	AuthAPIKey AuthType = "apikey"
	AuthSimple AuthType = "simple"
	AuthSigV4  AuthType = "sigv4"
	AuthOAuth2 AuthType = "oauth2"
)

// Auth says how to sign in at a provider.
type Auth struct {
	// Way to sign in.
	// +required
	Type AuthType `json:"type"`

	// Secret of the same namespace with the credentials.
	// +required
	SecretRef NameRef `json:"secretRef"`
}

// Phase is the state of a model or provider in one word.
//
// +kubebuilder:validation:Enum=Pending;Ready;Failed
type Phase string

// The states of a model or provider.
const (
	PhasePending Phase = "Pending"
	PhaseReady   Phase = "Ready"
	PhaseFailed  Phase = "Failed"
)
