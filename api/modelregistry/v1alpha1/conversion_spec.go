// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "github.com/modelplane/modelplane/api/modelregistry/v1beta1"

// defaultGrpcPort is what the API server fills in for v1alpha1. An absent grpc is shown with it, because otherwise
// writing back what was shown would count as a change.
const defaultGrpcPort int32 = 9090

// specToBeta converts what both versions can say, except for the proxy.
func specToBeta(src *ModelRegistrySpec) v1beta1.ModelRegistrySpec {
	return v1beta1.ModelRegistrySpec{
		Rest: v1beta1.Rest{
			Port: src.Rest.Port, ServiceRoute: v1beta1.Toggle(src.Rest.ServiceRoute),
			Resources: src.Rest.Resources, Image: src.Rest.Image,
		},
		Grpc:                     (*v1beta1.Grpc)(&src.Grpc),
		Postgres:                 postgresToBeta(src.Postgres),
		MySQL:                    mysqlToBeta(src.MySQL),
		EnableDatabaseUpgrade:    src.EnableDatabaseUpgrade,
		DowngradeDBSchemaVersion: src.DowngradeDBSchemaVersion,
	}
}

// specFromBeta converts what both versions can say and shows whichever proxy there is as the oauthProxy, so that
// somebody who manages a registry through v1alpha1 still finds there what they wrote.
func specFromBeta(src *v1beta1.ModelRegistrySpec) ModelRegistrySpec {
	dst := ModelRegistrySpec{
		Rest: Rest{
			Port: src.Rest.Port, ServiceRoute: Toggle(src.Rest.ServiceRoute),
			Resources: src.Rest.Resources, Image: src.Rest.Image,
		},
		Postgres:                 postgresFromBeta(src.Postgres),
		MySQL:                    mysqlFromBeta(src.MySQL),
		EnableDatabaseUpgrade:    src.EnableDatabaseUpgrade,
		DowngradeDBSchemaVersion: src.DowngradeDBSchemaVersion,
		OAuthProxy:               oauthFromBeta(src.OAuthProxy),
	}
	if src.Grpc != nil {
		dst.Grpc = Grpc(*src.Grpc)
	} else {
		dst.Grpc.Port = new(defaultGrpcPort)
	}
	if dst.OAuthProxy == nil {
		dst.OAuthProxy = oauthFromBeta((*v1beta1.OAuthProxy)(src.KubeRBACProxy))
	}
	return dst
}

// standInFor is the proxy that replaces mesh settings, which are no longer carried out.
func standInFor(istio *Istio) *OAuthProxy {
	port, routePort := int32(8443), int32(443)
	proxy := &OAuthProxy{Port: &port, RoutePort: &routePort, ServiceRoute: Enabled}
	gateway := istio.Gateway
	if gateway == nil {
		proxy.ServiceRoute = Disabled
		return proxy
	}
	proxy.Domain = gateway.Domain
	if gateway.Rest.GatewayRoute == Disabled {
		proxy.ServiceRoute = Disabled
	}
	if gateway.Rest.TLS != nil && gateway.Rest.Port != nil {
		routePort = *gateway.Rest.Port
	}
	return proxy
}

func kubeRBACFrom(src *OAuthProxy) *v1beta1.KubeRBACProxy {
	return (*v1beta1.KubeRBACProxy)(oauthToBeta(src))
}

func oauthToBeta(src *OAuthProxy) *v1beta1.OAuthProxy {
	if src == nil {
		return nil
	}
	return &v1beta1.OAuthProxy{
		Port:                 src.Port,
		TLSCertificateSecret: (*v1beta1.SecretKey)(src.TLSCertificateSecret),
		TLSKeySecret:         (*v1beta1.SecretKey)(src.TLSKeySecret),
		ServiceRoute:         v1beta1.Toggle(src.ServiceRoute),
		Domain:               src.Domain,
		RoutePort:            src.RoutePort,
		Image:                src.Image,
	}
}

func oauthFromBeta(src *v1beta1.OAuthProxy) *OAuthProxy {
	if src == nil {
		return nil
	}
	return &OAuthProxy{
		Port:                 src.Port,
		TLSCertificateSecret: (*SecretKey)(src.TLSCertificateSecret),
		TLSKeySecret:         (*SecretKey)(src.TLSKeySecret),
		ServiceRoute:         Toggle(src.ServiceRoute),
		Domain:               src.Domain,
		RoutePort:            src.RoutePort,
		Image:                src.Image,
	}
}

func postgresToBeta(src *Postgres) *v1beta1.Postgres {
	if src == nil {
		return nil
	}
	return &v1beta1.Postgres{
		Host:                        src.Host,
		HostAddress:                 src.HostAddress,
		Port:                        src.Port,
		Username:                    src.Username,
		PasswordSecret:              (*v1beta1.SecretKey)(src.PasswordSecret),
		Database:                    src.Database,
		SkipDBCreation:              src.SkipDBCreation,
		SSLMode:                     v1beta1.SSLMode(src.SSLMode),
		SSLCertificateSecret:        (*v1beta1.SecretKey)(src.SSLCertificateSecret),
		SSLKeySecret:                (*v1beta1.SecretKey)(src.SSLKeySecret),
		SSLPasswordSecret:           (*v1beta1.SecretKey)(src.SSLPasswordSecret),
		SSLRootCertificateConfigMap: (*v1beta1.ConfigMapKey)(src.SSLRootCertificateConfigMap),
		SSLRootCertificateSecret:    (*v1beta1.SecretKey)(src.SSLRootCertificateSecret),
	}
}

func postgresFromBeta(src *v1beta1.Postgres) *Postgres {
	if src == nil {
		return nil
	}
	return &Postgres{
		Host:                        src.Host,
		HostAddress:                 src.HostAddress,
		Port:                        src.Port,
		Username:                    src.Username,
		PasswordSecret:              (*SecretKey)(src.PasswordSecret),
		Database:                    src.Database,
		SkipDBCreation:              src.SkipDBCreation,
		SSLMode:                     SSLMode(src.SSLMode),
		SSLCertificateSecret:        (*SecretKey)(src.SSLCertificateSecret),
		SSLKeySecret:                (*SecretKey)(src.SSLKeySecret),
		SSLPasswordSecret:           (*SecretKey)(src.SSLPasswordSecret),
		SSLRootCertificateConfigMap: (*ConfigMapKey)(src.SSLRootCertificateConfigMap),
		SSLRootCertificateSecret:    (*SecretKey)(src.SSLRootCertificateSecret),
	}
}

func mysqlToBeta(src *MySQL) *v1beta1.MySQL {
	if src == nil {
		return nil
	}
	return &v1beta1.MySQL{
		Host:                             src.Host,
		Port:                             src.Port,
		Username:                         src.Username,
		PasswordSecret:                   (*v1beta1.SecretKey)(src.PasswordSecret),
		Database:                         src.Database,
		SkipDBCreation:                   src.SkipDBCreation,
		SSLCertificateSecret:             (*v1beta1.SecretKey)(src.SSLCertificateSecret),
		SSLKeySecret:                     (*v1beta1.SecretKey)(src.SSLKeySecret),
		SSLRootCertificateConfigMap:      (*v1beta1.ConfigMapKey)(src.SSLRootCertificateConfigMap),
		SSLRootCertificatesConfigMapName: src.SSLRootCertificatesConfigMapName,
		SSLRootCertificateSecret:         (*v1beta1.SecretKey)(src.SSLRootCertificateSecret),
		SSLRootCertificatesSecretName:    src.SSLRootCertificatesSecretName,
		SSLCipher:                        src.SSLCipher,
		VerifyServerCert:                 src.VerifyServerCert,
	}
}

func mysqlFromBeta(src *v1beta1.MySQL) *MySQL {
	if src == nil {
		return nil
	}
	return &MySQL{
		Host:                             src.Host,
		Port:                             src.Port,
		Username:                         src.Username,
		PasswordSecret:                   (*SecretKey)(src.PasswordSecret),
		Database:                         src.Database,
		SkipDBCreation:                   src.SkipDBCreation,
		SSLCertificateSecret:             (*SecretKey)(src.SSLCertificateSecret),
		SSLKeySecret:                     (*SecretKey)(src.SSLKeySecret),
		SSLRootCertificateConfigMap:      (*ConfigMapKey)(src.SSLRootCertificateConfigMap),
		SSLRootCertificatesConfigMapName: src.SSLRootCertificatesConfigMapName,
		SSLRootCertificateSecret:         (*SecretKey)(src.SSLRootCertificateSecret),
		SSLRootCertificatesSecretName:    src.SSLRootCertificatesSecretName,
		SSLCipher:                        src.SSLCipher,
		VerifyServerCert:                 src.VerifyServerCert,
	}
}
