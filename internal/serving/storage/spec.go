// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/internal/config"
)

// Types that an entry of the storage secret may have.
var (
	entryTypes  = []string{"s3", "hdfs", "webhdfs"}
	bucketTypes = []string{"s3"}
)

const (
	paramType   = "type"
	paramBucket = "bucket"
	defaultKey  = "default"
)

// entry is one entry of the storage secret, with what the service overrides.
type entry struct {
	uri         string // with the scheme that the entry tells
	secret, key string
	exists      bool // false for a default that is not there
	bundle      bundle
	params      map[string]string
}

// content is what is read of an entry. It has more, which is the downloader's.
type content struct {
	Type     string `json:"type"`
	Bucket   string `json:"bucket"`
	CABundle string `json:"cabundle_configmap"`
}

// secretName is the storage secret of a pod.
func secretName(annotations map[string]string, cfg config.Credentials) string {
	if cfg.StorageSecretNameAnnotation != "" {
		if name := annotations[cfg.StorageSecretNameAnnotation]; name != "" {
			return name
		}
	}
	if cfg.StorageSpecSecretName != "" {
		return cfg.StorageSpecSecretName
	}
	return "storage-config"
}

// findEntry finds the entry that a storage spec means and completes the address
// by it.
func findEntry(uri string, in Injection) (*entry, error) {
	e := &entry{uri: uri, params: in.Spec.Parameters, secret: secretName(in.Annotations, in.Config.Credentials)}
	named := in.Spec.StorageKey != nil && *in.Spec.StorageKey != ""
	switch {
	case named:
		e.key = *in.Spec.StorageKey
	case e.params[paramType] != "":
		e.key = defaultKey + "_" + e.params[paramType]
	default:
		e.key = defaultKey
	}
	var data []byte
	if secret := in.Secrets.Secrets[e.secret]; secret != nil {
		data, e.exists = secret.Data[e.key]
	}
	if named && !e.exists {
		return nil, fmt.Errorf("storage.key: Secret %s has no key %s; add it, or name one that it has", e.secret, e.key)
	}
	var c content
	if e.exists {
		if json.Unmarshal(data, &c) != nil { // the error would show a part of the secret
			return nil, fmt.Errorf("key %s of Secret %s is no JSON object with texts for type, bucket and cabundle_configmap; correct it", e.key, e.secret)
		}
		e.bundle.configMap = c.CABundle
	}
	err := e.complete(c)
	return e, err
}

// complete replaces the placeholder in the address.
func (e *entry) complete(c content) error {
	kind, bucket := e.params[paramType], e.params[paramBucket]
	if kind == "" {
		kind = c.Type
	}
	if bucket == "" {
		bucket = c.Bucket
	}
	path, open := strings.CutPrefix(e.uri, SchemePlaceholder)
	if kind == "" && !open {
		kind = schemeOf(e.uri)
	}
	switch {
	case kind == "":
		return fmt.Errorf("storage: the type of the storage is not known; set storage.parameters.type, or type in key %s of Secret %s, to one of %s",
			e.key, e.secret, strings.Join(entryTypes, ", "))
	case !slices.Contains(entryTypes, kind):
		return fmt.Errorf("storage: type %s is not supported; set storage.parameters.type, or type in key %s of Secret %s, to one of %s",
			kind, e.key, e.secret, strings.Join(entryTypes, ", "))
	case !open:
	case !slices.Contains(bucketTypes, kind):
		e.uri = kind + "://" + path
	case bucket == "":
		return fmt.Errorf("storage: type %s needs a bucket; set storage.parameters.bucket, or bucket in key %s of Secret %s", kind, e.key, e.secret)
	default:
		e.uri = kind + "://" + bucket + "/" + path
	}
	return nil
}

// apply hands the entry to the downloader, by reference.
func (e *entry) apply(c *corev1.Container) {
	if e.bundle.configMap != "" {
		setEnv(c, corev1.EnvVar{Name: envCABundleConfigMap, Value: e.bundle.configMap})
	}
	if e.exists {
		setEnv(c, fromSecret("STORAGE_CONFIG", e.secret, e.key))
	}
	if len(e.params) > 0 {
		// A map of strings always has a JSON form.
		params, _ := json.Marshal(e.params)
		setEnv(c, corev1.EnvVar{Name: "STORAGE_OVERRIDE_CONFIG", Value: string(params)})
	}
}
