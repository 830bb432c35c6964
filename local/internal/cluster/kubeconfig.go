// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// componentKubeconfig is how a component reaches the API server.
func (c *Cluster) componentKubeconfig(name string) string {
	return filepath.Join(c.Dir, "kubeconfigs", name)
}

// writeKubeconfigs renews every kubeconfig, since ports and certificates may have changed. Keys are
// embedded, so that the one for people can be copied elsewhere as a single file.
func (c *Cluster) writeKubeconfigs(p pki, st *state) error {
	files := map[string]string{
		c.Kubeconfig(): certAdmin,
		c.componentKubeconfig(nameControllerManager): certControllerManager,
		c.componentKubeconfig(nameScheduler):         certScheduler,
		c.componentKubeconfig(nameKubelet):           certKubelet,
		c.componentKubeconfig(nameProxy):             certProxy,
		c.componentKubeconfig(nameDNS):               certDNS,
		c.componentKubeconfig(nameAddons):            certAddons,
	}
	for path, cert := range files {
		data, err := kubeconfig(p, st.apiServerURL(), cert)
		if err != nil {
			return fmt.Errorf("kubeconfig for %s: %w", cert, err)
		}
		if err := writeFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func kubeconfig(p pki, server, cert string) ([]byte, error) {
	var pems [3][]byte
	for i, path := range []string{p.cert(caCluster), p.cert(cert), p.key(cert)} {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		pems[i] = data
	}
	const name = "modelplane-local"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: pems[0]}
	config.AuthInfos[cert] = &clientcmdapi.AuthInfo{ClientCertificateData: pems[1], ClientKeyData: pems[2]}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: cert}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}
