// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// Variables of S3. One of them is misspelt everywhere.
const (
	envUseHTTPS          = "S3_USE_HTTPS"
	envEndpoint          = "S3_ENDPOINT"
	envEndpointURL       = "AWS_ENDPOINT_URL"
	envCABundle          = "AWS_CA_BUNDLE"
	envCABundleConfigMap = "AWS_CA_BUNDLE_CONFIGMAP"
)

// s3Settings lists the settings in the order of their variables: the variable,
// which is the key in a secret as well, the annotation, and the configuration.
func s3Settings(cfg config.S3) []struct{ name, annotation, configured string } {
	return []struct{ name, annotation, configured string }{
		{envUseHTTPS, v1beta1.AnnotationS3UseHTTPS, cfg.S3UseHTTPS},
		{envEndpoint, v1beta1.AnnotationS3Endpoint, cfg.S3Endpoint},
		{"S3_VERIFY_SSL", v1beta1.AnnotationS3VerifySSL, cfg.S3VerifySSL},
		{"awsAnonymousCredential", v1beta1.AnnotationS3UseAnonCredential, cfg.S3UseAnonymousCredential},
		{"AWS_DEFAULT_REGION", v1beta1.AnnotationS3Region, cfg.S3Region},
		{"S3_USER_VIRTUAL_BUCKET", v1beta1.AnnotationS3UseVirtualBucket, cfg.S3UseVirtualBucket},
		{"S3_USE_ACCELERATE", v1beta1.AnnotationS3UseAccelerate, cfg.S3UseAccelerate},
		{envCABundle, v1beta1.AnnotationS3CABundle, cfg.S3CABundle},
		{envCABundleConfigMap, v1beta1.AnnotationS3CABundleConfigMap, cfg.S3CABundleConfigMap},
	}
}

// s3Env turns the settings of a secret or a service account into variables: its
// annotations come first, then its data, then the configuration. What stands in
// data is referred to and not copied.
func s3Env(annotations map[string]string, secret *corev1.Secret, cfg config.S3) ([]corev1.EnvVar, bundle) {
	var env []corev1.EnvVar
	values := map[string]string{}
	for _, s := range s3Settings(cfg) {
		value, inData := s.configured, false
		if annotation, ok := annotations[s.annotation]; ok {
			value = annotation
		} else if secret != nil {
			if data, ok := secret.Data[s.name]; ok {
				value, inData = string(data), true
			}
		}
		if value == "" {
			continue
		}
		values[s.name] = value
		if inData {
			env = append(env, fromSecret(s.name, secret.Name, s.name))
		} else {
			env = append(env, corev1.EnvVar{Name: s.name, Value: value})
		}
		if s.name == envEndpoint {
			env = append(env, corev1.EnvVar{Name: envEndpointURL, Value: endpointURL(value, values[envUseHTTPS], inData)})
		}
	}
	return env, bundle{configMap: values[envCABundleConfigMap], file: values[envCABundle]}
}

// endpointURL is the endpoint with a scheme. One that is in a secret is referred
// to by its variable, which stands before this one.
func endpointURL(endpoint, useHTTPS string, inData bool) string {
	scheme := "https://"
	switch {
	case strings.HasPrefix(endpoint, "http://"), strings.HasPrefix(endpoint, "https://"):
		scheme = ""
	case useHTTPS == "0":
		scheme = "http://"
	}
	if inData {
		endpoint = "$(" + envEndpoint + ")"
	}
	return scheme + endpoint
}
