// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/internal/engine"
)

// connectionKey is the key of the Secret that says how etcd is reached. Others are files that it refers to.
const connectionKey = "etcd_connection"

// connect plans the connection to etcd. In the manager's own namespace the Secret itself is used.
func (p *planner) connect() {
	if p.seen.Home && p.seen.Connection != nil || p.seen.OwnConnection {
		return
	}
	meta := metav1.ObjectMeta{Namespace: p.namespace, Name: p.seen.EtcdSecret}
	kept := engine.Child{Unmanaged: true, Object: &corev1.Secret{ObjectMeta: meta}}
	if p.seen.Connection == nil {
		p.add(kept)
		p.plan.Problem = engine.WaitFor("EtcdSecretMissing",
			"Secret %s/%s does not exist, so that runtimes in namespace %s do not know where to keep what they have loaded. Create it with the key %s.",
			p.seen.HomeName, p.seen.EtcdSecret, p.namespace, connectionKey)
		return
	}
	data, err := connectionFor(p.seen.Connection, p.namespace, p.seen.HomeName)
	if err != nil {
		p.add(kept)
		p.plan.Problem = engine.MustChange("EtcdSecretInvalid", "Secret %s/%s cannot be used: %s. Correct it.", p.seen.HomeName, p.seen.EtcdSecret, err)
		return
	}
	meta.Labels = map[string]string{"app.kubernetes.io/managed-by": "modelmesh-controller"}
	p.add(engine.Child{Adopt: true, Object: &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeOpaque, Data: data}})
}

// connectionFor is the connection as a namespace gets it: below a root of its own, with all files that it refers to. No
// error has anything of the connection in it.
func connectionFor(source map[string][]byte, namespace, home string) (map[string][]byte, error) {
	text, ok := source[connectionKey]
	if !ok {
		return nil, errors.New("it has no key " + connectionKey)
	}
	connection := map[string]any{}
	if json.Unmarshal(text, &connection) != nil {
		return nil, errors.New("what its key " + connectionKey + " holds is no JSON object")
	}
	endpoints, _ := connection["endpoints"].(string)
	if endpoints == "" {
		return nil, errors.New("its key " + connectionKey + " has no endpoints")
	}
	connection["endpoints"] = fromElsewhere(endpoints, home)
	root, _ := connection["root_prefix"].(string)
	connection["root_prefix"] = strings.TrimSuffix(root, "/") + "/mm_ns/" + namespace
	out := maps.Clone(source)
	var err error
	out[connectionKey], err = json.Marshal(connection)
	return out, err
}

// fromElsewhere makes hosts that are Services of a namespace known in others.
func fromElsewhere(endpoints, home string) string {
	all := strings.Split(endpoints, ",")
	for i, e := range all {
		u, err := url.Parse(strings.TrimSpace(e))
		if err != nil || u.Host == "" {
			continue
		}
		host, port := u.Hostname(), u.Port()
		if host == "" || host == "localhost" || strings.ContainsAny(host, ".:") || net.ParseIP(host) != nil {
			continue
		}
		u.Host = host + "." + home
		if port != "" {
			u.Host += ":" + port
		}
		all[i] = u.String()
	}
	return strings.Join(all, ",")
}
