// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/internal/config"
)

// AnnotationAWSRole on a service account stands for an AWS role that its pods
// get without a secret.
const AnnotationAWSRole = "eks.amazonaws.com/role-arn"

// credentials gives the init container its credentials and tells which
// certificates come with them.
func (i *injector) credentials(c *corev1.Container) bundle {
	if i.entry != nil {
		i.entry.apply(c)
		return i.entry.bundle
	}
	return accountCredentials(c, &i.pod.Volumes, i.Annotations, i.Secrets, i.Config)
}

// AccountCredentials gives a container other than the initializer what the
// secrets of a service account hold.
func AccountCredentials(c *corev1.Container, volumes *[]corev1.Volume, annotations map[string]string, from Secrets, cfg *config.Config) {
	accountCredentials(c, volumes, annotations, from, cfg)
}

// accountCredentials takes a secret for the first kind of credentials that it
// has. Later secrets override earlier ones, and all override the role.
func accountCredentials(c *corev1.Container, volumes *[]corev1.Volume, annotations map[string]string, from Secrets, cfg *config.Config) bundle {
	var out bundle
	if from.ServiceAccount == nil {
		return out
	}
	if _, ok := from.ServiceAccount.Annotations[AnnotationAWSRole]; ok {
		var env []corev1.EnvVar
		env, out = s3Env(from.ServiceAccount.Annotations, nil, cfg.Credentials.S3)
		setEnv(c, env...)
	}
	for _, name := range accountSecrets(from.ServiceAccount, annotations, cfg.Credentials) {
		secret := from.Secrets[name]
		if secret == nil {
			continue
		}
		if b, _ := secretCredentials(c, volumes, secret, cfg.Credentials); b != (bundle{}) {
			out = bundle{configMap: cmp.Or(b.configMap, out.configMap), file: cmp.Or(b.file, out.file)}
		}
	}
	return out
}

// Ignored names the secrets of a service account in which nothing is found. Those of other types are there for something
// else.
func Ignored(from Secrets, annotations map[string]string, cfg *config.Config) []string {
	var out []string
	if from.ServiceAccount == nil {
		return nil
	}
	for _, name := range accountSecrets(from.ServiceAccount, annotations, cfg.Credentials) {
		secret := from.Secrets[name]
		if secret == nil || secret.Type != "" && secret.Type != corev1.SecretTypeOpaque {
			continue
		}
		if _, used := secretCredentials(&corev1.Container{}, &[]corev1.Volume{}, secret, cfg.Credentials); !used {
			out = append(out, name)
		}
	}
	return out
}

// accountSecrets names the secrets that count for a pod: the one that it names
// in an annotation, or all of its service account.
func accountSecrets(account *corev1.ServiceAccount, annotations map[string]string, cfg config.Credentials) []string {
	if cfg.StorageSecretNameAnnotation != "" {
		if name := annotations[cfg.StorageSecretNameAnnotation]; name != "" {
			return []string{name}
		}
	}
	var out []string
	for _, ref := range account.Secrets {
		out = append(out, ref.Name)
	}
	return out
}

// Data keys of secrets that are not S3.
const (
	keyAzureAccessKey = "AZURE_STORAGE_ACCESS_KEY"
	keyHTTPSHost      = "https-host"
	keyHTTPSHeaders   = "headers"
	keyHDFS           = "HDFS_NAMENODE"
	keyHuggingFace    = "HF_TOKEN"
	keyModelScope     = "MODELSCOPE_API_TOKEN"
)

// secretCredentials gives a container what a secret holds; it is not used where that is nothing that is known.
func secretCredentials(c *corev1.Container, volumes *[]corev1.Volume, secret *corev1.Secret, cfg config.Credentials) (own bundle, used bool) {
	has := func(keys ...string) bool {
		for _, key := range keys {
			if _, ok := secret.Data[key]; ok {
				return true
			}
		}
		return false
	}
	gcsFile := cmp.Or(cfg.GCS.GCSCredentialFileName, "gcloud-application-credentials.json")
	switch {
	case has(cmp.Or(cfg.S3.S3SecretAccessKeyName, "awsSecretAccessKey")):
		env, own := s3Env(secret.Annotations, secret, cfg.S3)
		setEnv(c,
			fromSecret("AWS_ACCESS_KEY_ID", secret.Name, cmp.Or(cfg.S3.S3AccessKeyIDName, "awsAccessKeyID")),
			fromSecret("AWS_SECRET_ACCESS_KEY", secret.Name, cmp.Or(cfg.S3.S3SecretAccessKeyName, "awsSecretAccessKey")))
		setEnv(c, env...)
		return own, true
	case has(gcsFile):
		mountSecret(c, volumes, secret, "user-gcp-sa", "/var/secrets/")
		setEnv(c, corev1.EnvVar{Name: "GOOGLE_APPLICATION_CREDENTIALS", Value: "/var/secrets/" + gcsFile})
	case has("AZ_CLIENT_ID", "AZURE_CLIENT_ID", "AZURE_ACCESS_TOKEN"):
		setEnv(c, azureEnv(secret)...)
	case has(keyAzureAccessKey):
		setEnv(c, fromSecret(keyAzureAccessKey, secret.Name, keyAzureAccessKey))
	case has(keyHTTPSHost):
		host := strings.TrimSpace(string(secret.Data[keyHTTPSHost]))
		if has(keyHTTPSHeaders) && host != "" {
			setEnv(c, fromSecret(host+"-"+keyHTTPSHeaders, secret.Name, keyHTTPSHeaders))
		}
	case has(keyHDFS):
		mountSecret(c, volumes, secret, "hdfs-secrets", "/var/secrets/kserve-hdfscreds")
	case has(keyHuggingFace):
		setEnv(c, fromSecret(keyHuggingFace, secret.Name, keyHuggingFace))
	case has(keyModelScope):
		setEnv(c, fromSecret(keyModelScope, secret.Name, keyModelScope))
	default:
		return bundle{}, false
	}
	return bundle{}, true
}

func mountSecret(c *corev1.Container, volumes *[]corev1.Volume, secret *corev1.Secret, volume, place string) {
	addVolume(volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret.Name},
	}})
	addMount(c, corev1.VolumeMount{Name: volume, MountPath: place, ReadOnly: true})
}

// azureEnv are the variables of Azure, in order. Secrets may still have the keys
// that came first. The tenant is always asked for: a pod without it is told so
// by Kubernetes.
func azureEnv(secret *corev1.Secret) []corev1.EnvVar {
	const tenant = "AZURE_TENANT_ID"
	var out []corev1.EnvVar
	for _, v := range []struct{ name, old string }{
		{"AZURE_SUBSCRIPTION_ID", "AZ_SUBSCRIPTION_ID"},
		{tenant, "AZ_TENANT_ID"},
		{"AZURE_CLIENT_ID", "AZ_CLIENT_ID"},
		{"AZURE_CLIENT_SECRET", "AZ_CLIENT_SECRET"},
		{keyAzureAccessKey, ""},
		{"AZURE_ACCESS_TOKEN", ""},
		{"AZURE_ACCESS_EXPIRES_ON_SECONDS", ""},
		{"AZURE_ACCOUNT_NAME", ""},
		{"AZURE_SERVICE_URL", ""},
	} {
		key := v.name
		if _, ok := secret.Data[v.old]; ok {
			key = v.old
		}
		if _, ok := secret.Data[key]; ok || v.name == tenant {
			out = append(out, fromSecret(v.name, secret.Name, key))
		}
	}
	return out
}
