// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// SecretKey names a key of a Secret.
type SecretKey struct {
	// Name of the Secret.
	// +required
	Name string `json:"name"`

	// Key inside the Secret.
	// +required
	Key string `json:"key"`
}

// ConfigMapKey names a key of a ConfigMap.
type ConfigMapKey struct {
	// Name of the ConfigMap.
	// +required
	Name string `json:"name"`

	// Key inside the ConfigMap.
	// +required
	Key string `json:"key"`
}

// SSLMode says how far a connection to PostgreSQL is protected.
//
// +kubebuilder:validation:Enum=disable;allow;prefer;require;verify-ca;verify-full
type SSLMode string

// The ways to protect a connection to PostgreSQL.
const (
	SSLDisable    SSLMode = "disable"
	SSLAllow      SSLMode = "allow"
	SSLPrefer     SSLMode = "prefer"
	SSLRequire    SSLMode = "require"
	SSLVerifyCA   SSLMode = "verify-ca"
	SSLVerifyFull SSLMode = "verify-full"
)

// Postgres is a PostgreSQL database that keeps a registry's data.
type Postgres struct {
	// Host name of the server.
	// +optional
	Host string `json:"host,omitempty"`

	// Numeric address of the server.
	// +optional
	HostAddress string `json:"hostAddress,omitempty"`

	// Port of the server.
	// +optional
	// +kubebuilder:default=5432
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// User to sign in as.
	// +optional
	Username string `json:"username,omitempty"`

	// Password to sign in with.
	// +optional
	PasswordSecret *SecretKey `json:"passwordSecret,omitempty"`

	// Name of the database.
	// +required
	Database string `json:"database"`

	// Leave the creation of the database to somebody else.
	// +optional
	// +kubebuilder:default=false
	SkipDBCreation *bool `json:"skipDBCreation,omitempty"`

	// How the connection is protected.
	// +optional
	// +kubebuilder:default=disable
	SSLMode SSLMode `json:"sslMode,omitempty"`

	// Certificate of the client.
	// +optional
	SSLCertificateSecret *SecretKey `json:"sslCertificateSecret,omitempty"`

	// Private key of the client.
	// +optional
	SSLKeySecret *SecretKey `json:"sslKeySecret,omitempty"`

	// Password of the private key.
	// +optional
	SSLPasswordSecret *SecretKey `json:"sslPasswordSecret,omitempty"`

	// Certificates of authorities to trust, from a ConfigMap.
	// +optional
	SSLRootCertificateConfigMap *ConfigMapKey `json:"sslRootCertificateConfigMap,omitempty"`

	// Certificates of authorities to trust, from a Secret.
	// +optional
	SSLRootCertificateSecret *SecretKey `json:"sslRootCertificateSecret,omitempty"`
}

// MySQL is a MySQL or MariaDB database that keeps a registry's data.
type MySQL struct {
	// Host name or address of the server.
	// +required
	Host string `json:"host"`

	// Port of the server.
	// +optional
	// +kubebuilder:default=3306
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// User to sign in as.
	// +required
	Username string `json:"username"`

	// Password to sign in with.
	// +optional
	PasswordSecret *SecretKey `json:"passwordSecret,omitempty"`

	// Name of the database.
	// +required
	Database string `json:"database"`

	// Leave the creation of the database to somebody else.
	// +optional
	// +kubebuilder:default=false
	SkipDBCreation *bool `json:"skipDBCreation,omitempty"`

	// Certificate of the client.
	// +optional
	SSLCertificateSecret *SecretKey `json:"sslCertificateSecret,omitempty"`

	// Private key of the client.
	// +optional
	SSLKeySecret *SecretKey `json:"sslKeySecret,omitempty"`

	// Certificate of an authority to trust, from a ConfigMap.
	// +optional
	SSLRootCertificateConfigMap *ConfigMapKey `json:"sslRootCertificateConfigMap,omitempty"`

	// ConfigMap each of whose keys is a certificate of an authority to trust.
	// +optional
	SSLRootCertificatesConfigMapName *string `json:"sslRootCertificatesConfigMapName,omitempty"`

	// Certificate of an authority to trust, from a Secret.
	// +optional
	SSLRootCertificateSecret *SecretKey `json:"sslRootCertificateSecret,omitempty"`

	// Secret each of whose keys is a certificate of an authority to trust.
	// +optional
	SSLRootCertificatesSecretName *string `json:"sslRootCertificatesSecretName,omitempty"`

	// Ciphers that the connection may use.
	// +optional
	SSLCipher *string `json:"sslCipher,omitempty"`

	// Whether the server's certificate must match its host name.
	// +optional
	VerifyServerCert *bool `json:"verifyServerCert,omitempty"`
}
