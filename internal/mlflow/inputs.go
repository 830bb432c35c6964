// SPDX-License-Identifier: Apache-2.0

package mlflow

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
)

// source is a Secret or ConfigMap, or one key of it, that the server reads when it starts.
type source struct {
	kind, name, key string
	// optional sources need not exist.
	optional bool
}

func (s source) String() string {
	if s.key == "" {
		return s.kind + " " + s.name
	}
	return fmt.Sprintf("key %s of %s %s", s.key, s.kind, s.name)
}

// content is what a source holds.
type content struct {
	found bool
	uid   string
	data  map[string][]byte
}

// sourcesOf are those that a spec names.
func sourcesOf(spec *mlflowv1.MLflowSpec) []source {
	var out []source
	for _, s := range storesOf(spec) {
		if s.from != nil {
			out = append(out, ofSecret(s.from.Name, s.from.Key, s.from.Optional))
		}
	}
	for _, e := range spec.Env {
		if e.ValueFrom == nil {
			continue
		}
		if ref := e.ValueFrom.SecretKeyRef; ref != nil {
			out = append(out, ofSecret(ref.Name, ref.Key, ref.Optional))
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
			out = append(out, ofConfigMap(ref.Name, ref.Key, ref.Optional))
		}
	}
	for _, e := range spec.EnvFrom {
		if ref := e.SecretRef; ref != nil {
			out = append(out, ofSecret(ref.Name, "", ref.Optional))
		}
		if ref := e.ConfigMapRef; ref != nil {
			out = append(out, ofConfigMap(ref.Name, "", ref.Optional))
		}
	}
	if ref := spec.CABundleConfigMap; ref != nil {
		out = append(out, ofConfigMap(ref.Name, "", ptr.To(true))) // judged by itself
	}
	out = append(out, ofConfigMap(platformCA, "", ptr.To(true)))
	slices.SortFunc(out, func(a, b source) int {
		return cmp.Or(cmp.Compare(a.String(), b.String()), order(a.optional, b.optional))
	})
	return slices.CompactFunc(out, func(a, b source) bool { return a.String() == b.String() })
}

// order puts what is needed before what is not.
func order(a, b bool) int {
	if a == b {
		return 0
	}
	if b {
		return -1
	}
	return 1
}

func ofSecret(name, key string, optional *bool) source {
	return source{kind: "Secret", name: name, key: key, optional: ptr.Deref(optional, false)}
}

func ofConfigMap(name, key string, optional *bool) source {
	return source{kind: "ConfigMap", name: name, key: key, optional: ptr.Deref(optional, false)}
}

// readInputs reads what the server will read, finds out what is missing, and sums it up so that a change of it shows.
func (o *observer) readInputs(ctx context.Context) error {
	spec, sum := &o.mlflow.Spec, sha256.New()
	fmt.Fprintf(sum, "%s\n", o.seen.TLS.Certificate)
	for _, s := range sourcesOf(spec) {
		c, err := o.readSource(ctx, s)
		if err != nil {
			return err
		}
		data, whole := c.data, s.key == ""
		if !whole {
			data = map[string][]byte{}
			if value, ok := c.data[s.key]; ok {
				data[s.key] = value
			}
		}
		if !s.optional && (!c.found || !whole && len(data) == 0) {
			o.seen.Missing = append(o.seen.Missing, s.String())
		}
		o.seen.HasPlatformCA = o.seen.HasPlatformCA || c.found && s == ofConfigMap(platformCA, "", ptr.To(true))
		o.seen.HasCA = o.seen.HasCA || c.found && spec.CABundleConfigMap != nil && s == ofConfigMap(spec.CABundleConfigMap.Name, "", ptr.To(true))
		// The UID, which only those know who may read the Secret's metadata, keeps others from trying out passwords.
		fmt.Fprintf(sum, "%s %t %s\n", s, c.found, c.uid)
		for _, key := range slices.Sorted(maps.Keys(data)) {
			fmt.Fprintf(sum, "%s %d ", key, len(data[key]))
			sum.Write(data[key])
		}
		o.noteAddresses(s, data)
	}
	o.seen.Checksum = hex.EncodeToString(sum.Sum(nil)[:16])
	return nil
}

func (o *observer) readSource(ctx context.Context, s source) (content, error) {
	var obj client.Object = &corev1.Secret{}
	if s.kind == "ConfigMap" {
		obj = &corev1.ConfigMap{}
	}
	found, err := exists(o.GetUncached(ctx, o.key(s.name), obj))
	if err != nil || !found {
		return content{}, err
	}
	c := content{found: true, uid: string(obj.GetUID())}
	switch obj := obj.(type) {
	case *corev1.Secret:
		c.data = obj.Data
	case *corev1.ConfigMap:
		c.data = map[string][]byte{}
		for key, value := range obj.Data {
			c.data[key] = []byte(value)
		}
		maps.Copy(c.data, obj.BinaryData)
	}
	return c, nil
}

// noteAddresses keeps the addresses of databases that come from Secrets; what they are is decided by their first part.
func (o *observer) noteAddresses(s source, data map[string][]byte) {
	for _, db := range storesOf(&o.mlflow.Spec) {
		if db.from != nil && s.kind == "Secret" && db.from.Name == s.name && db.from.Key == s.key {
			o.seen.Addresses[db.field] = string(data[s.key])
		}
	}
}
