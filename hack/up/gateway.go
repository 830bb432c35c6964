// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	gatewayModule = "runtimes/gateway"
	gatewayImage  = "modelplane-gateway"
	envoyImage    = "modelplane/envoy" // started as /envoy

	gatewayNamespace = "envoy-gateway-system" // of Envoy Gateway and Envoy
	gatewayName      = "kserve/kserve-ingress-gateway"
	// gatewayProxy is what Envoy Gateway calls the Deployment and the Service of that Gateway's Envoy; formerProxy is what they
	// were called while there could be only one.
	gatewayProxy, formerProxy = "envoy-kserve-kserve-ingress-gateway-deaaa49b", "envoy"
	// localDomain is resolved to this machine by curl and browsers without asking anybody.
	localDomain = "localhost"
	// doorAddress is where the Gateway takes requests: modelplane-local leads Services of type LoadBalancer there.
	doorAddress = "127.0.0.1:80"
)

var (
	//go:embed gateway.yaml
	gatewayManifests string
	//go:embed certificates.yaml
	certificatesJob string
)

// gateway is Envoy Gateway on its way into the cluster.
type gateway struct {
	controller, envoy string // images
	began             time.Time
}

// door tells whether the port of the Gateway can be had: nobody has it, or the Gateway of this cluster.
func (u *up) door(ctx context.Context, kubeconfig string) (bool, error) {
	listener, err := net.Listen("tcp", doorAddress)
	if err == nil {
		return true, listener.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return false, fmt.Errorf("the gateway cannot listen on this machine: %w; leave it out with --no-gateway", err)
	}
	found, err := u.kubectl(ctx, kubeconfig, "", "get", "service", gatewayProxy, formerProxy, "--namespace", gatewayNamespace, "--ignore-not-found",
		"-o", "jsonpath={range .items[*]}{.metadata.name} {.status.loadBalancer.ingress[0].hostname}{\"\\n\"}{end}")
	if err != nil {
		return false, err
	}
	ours := false
	for line := range strings.Lines(found) {
		name, address, _ := strings.Cut(strings.TrimSpace(line), " ")
		ours = ours || address != ""
		if name == formerProxy {
			err = u.endFormerProxy(ctx, kubeconfig)
		}
	}
	return ours, err
}

// endFormerProxy frees the port of the Gateway for the Envoy that has another name now.
func (u *up) endFormerProxy(ctx context.Context, kubeconfig string) error {
	_, err := u.kubectl(ctx, kubeconfig, "", "delete", "--namespace", gatewayNamespace, "--ignore-not-found",
		"service/"+formerProxy, "deployment/"+formerProxy, "poddisruptionbudget/"+formerProxy)
	return err
}

// bringGateway makes the images and applies everything, and leaves it to start. It returns nothing where the gateway is
// left out.
func (u *up) bringGateway(ctx context.Context, kubeconfig string) (*gateway, error) {
	if u.noGateway {
		return nil, nil
	}
	free, err := u.door(ctx, kubeconfig)
	if err != nil {
		return nil, err
	}
	if !free {
		u.say("gateway", "left out: something else listens at %s; end it and run make up again to have URLs that answer", doorAddress)
		return nil, nil
	}
	if err := u.compileGateway(ctx); err != nil {
		return nil, err
	}
	g := &gateway{}
	if g.controller, err = u.load(ctx, gatewayImage, "--module", gatewayModule, "--package", "./cmd/envoy-gateway"); err != nil {
		return nil, err
	}
	if g.envoy, err = u.loadEnvoy(ctx); err != nil {
		return nil, err
	}
	g.began = time.Now()
	if err := u.applyGateway(ctx, kubeconfig, g); err != nil {
		return nil, fmt.Errorf("installing the gateway: %w", err)
	}
	u.say("gateway", "installed in %s", since(g.began))
	return g, nil
}

// compileGateway shows how far it is, the first time, when it takes minutes.
func (u *up) compileGateway(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(u.archive, gatewayImage+".oci.tar")); err == nil {
		return nil
	}
	u.say("gateway", "Envoy Gateway is compiled (minutes the first time)")
	return u.pass(ctx, "go", "run", "./hack/progress", "env", "CGO_ENABLED=0", "go", "build", "-C", gatewayModule, "-v", "-trimpath", "-buildvcs=false",
		"github.com/envoyproxy/gateway/cmd/envoy-gateway/root")
}

func (u *up) loadEnvoy(ctx context.Context) (string, error) {
	tree, err := filepath.Abs(filepath.Join(u.archive, filepath.Base(envoyImage)))
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(tree); err != nil {
		return "", err
	}
	if _, err := output(ctx, "go", "run", "./hack/envoy", "tree", tree); err != nil {
		return "", err
	}
	return u.load(ctx, envoyImage, "--tree", tree)
}

// applyGateway brings definitions before objects of their kinds.
func (u *up) applyGateway(ctx context.Context, kubeconfig string, g *gateway) error {
	if err := u.awaitEnd(ctx, kubeconfig, gatewayNamespace); err != nil {
		return err
	}
	definitions, err := gatewayDefinitions(ctx)
	if err != nil {
		return err
	}
	apply := []string{"apply", "--server-side", "--force-conflicts", "--validate=false", "--field-manager", "modelplane-up"}
	args := apply
	for _, path := range definitions {
		args = append(args, "-f", path)
	}
	names, err := u.kubectl(ctx, kubeconfig, "", append(args, "-o", "name")...)
	if err != nil {
		return err
	}
	wait := []string{"wait", "--for=condition=Established", "--timeout", u.timeout.String()}
	for name := range strings.FieldsSeq(names) {
		if strings.HasPrefix(name, "customresourcedefinition.") {
			wait = append(wait, name)
		}
	}
	if _, err := u.kubectl(ctx, kubeconfig, "", wait...); err != nil {
		return err
	}
	if _, err := u.kubectl(ctx, kubeconfig, g.fill(gatewayManifests), append(apply, "-f", "-")...); err != nil {
		return err
	}
	return u.ensureCertificates(ctx, kubeconfig, g)
}

// awaitEnd is for a namespace that somebody has deleted a moment ago: nothing can be put there before it is gone.
func (u *up) awaitEnd(ctx context.Context, kubeconfig, namespace string) error {
	ending, err := u.kubectl(ctx, kubeconfig, "", "get", "namespace", namespace, "--ignore-not-found", "-o", "jsonpath={.metadata.deletionTimestamp}")
	if err != nil || ending == "" {
		return err
	}
	u.say("gateway", "waiting for the end of the namespace %s", namespace)
	_, err = u.kubectl(ctx, kubeconfig, "", "wait", "--for=delete", "--timeout", u.timeout.String(), "namespace/"+namespace)
	return err
}

// gatewayDefinitions are the files with what the gateway is told by, as the module of Envoy Gateway and that of the Gateway
// API, which it fits to, have them. Of kinds that are not defined it does without: each takes memory of the API server.
func gatewayDefinitions(ctx context.Context) ([]string, error) {
	dirs, err := output(ctx, "go", "list", "-C", gatewayModule, "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api", "github.com/envoyproxy/gateway")
	if err != nil {
		return nil, err
	}
	api, controller, _ := strings.Cut(dirs, "\n")
	var out []string
	for _, kind := range []string{"gatewayclasses", "gateways", "httproutes", "grpcroutes", "referencegrants", "backendtlspolicies"} {
		out = append(out, filepath.Join(api, "config/crd/standard/gateway.networking.k8s.io_"+kind+".yaml"))
	}
	for _, kind := range []string{"backendtrafficpolicies", "backends", "envoyextensionpolicies"} {
		out = append(out, filepath.Join(controller, "charts/gateway-helm/charts/crds/crds/generated/gateway.envoyproxy.io_"+kind+".yaml"))
	}
	return out, nil
}

// ensureCertificates has them made once: Envoy would have to start again with new ones. Who shows them waits for them.
func (u *up) ensureCertificates(ctx context.Context, kubeconfig string, g *gateway) error {
	in := []string{"--namespace", gatewayNamespace}
	found, err := u.kubectl(ctx, kubeconfig, "", append(in, "get", "secret", "envoy-gateway", "envoy", "--ignore-not-found", "-o", "name")...)
	if err != nil || len(strings.Fields(found)) == 2 {
		return err
	}
	if _, err := u.kubectl(ctx, kubeconfig, "", append(in, "delete", "job", "certificates", "--ignore-not-found")...); err != nil {
		return err
	}
	_, err = u.kubectl(ctx, kubeconfig, g.fill(certificatesJob), append(in, "create", "-f", "-")...)
	return err
}

// fill names the images.
func (g *gateway) fill(manifests string) string {
	return strings.NewReplacer("GATEWAY_IMAGE", g.controller, "ENVOY_IMAGE", g.envoy).Replace(manifests)
}

// awaitGateway ends when requests can come in, and shows what the gateway costs.
func (u *up) awaitGateway(ctx context.Context, kubeconfig string, g *gateway) error {
	if g == nil {
		return nil
	}
	namespace, name, _ := strings.Cut(gatewayName, "/")
	in := []string{"--namespace", gatewayNamespace}
	for _, deployment := range []string{"envoy-gateway", gatewayProxy} {
		_, err := patiently(ctx, u.timeout, notThere, func(ctx context.Context) (string, error) {
			return u.kubectl(ctx, kubeconfig, "", append(in, "rollout", "status", "deployment/"+deployment, "--timeout", u.timeout.String())...)
		})
		if err != nil {
			return fmt.Errorf("the gateway is not ready: %w; see `kubectl get pods --namespace %s`", err, gatewayNamespace)
		}
	}
	_, err := u.kubectl(ctx, kubeconfig, "", "wait", "--namespace", namespace, "--for=condition=Programmed", "--timeout", u.timeout.String(), "gateway/"+name)
	if err != nil {
		state, _ := u.kubectl(ctx, kubeconfig, "", "get", "gateway", name, "--namespace", namespace, "-o", "jsonpath={.status.conditions}")
		return fmt.Errorf("the gateway is not ready: %w\n%s", err, state)
	}
	u.say("gateway", "ready at %s, %s after it was installed", doorAddress, since(g.began))
	for _, line := range u.gatewayMemory(ctx, kubeconfig) {
		u.say("", "%s", line)
	}
	return nil
}

// notThere tells of a Deployment that the controller has not made yet.
func notThere(err error) bool { return strings.Contains(err.Error(), "not found") }

// gatewayMemory is what the pods of the gateway take, as the kubelet sees them. Nobody waits for it.
func (u *up) gatewayMemory(ctx context.Context, kubeconfig string) []string {
	raw, err := u.kubectl(ctx, kubeconfig, "", "get", "--raw", "/api/v1/nodes/local/proxy/stats/summary?only_cpu_and_memory=true")
	if err != nil {
		return nil
	}
	return memoryOf(raw, gatewayNamespace)
}

// memoryOf reads the kubelet's summary: one line for each container of a namespace.
func memoryOf(summary, namespace string) []string {
	var all struct {
		Pods []struct {
			PodRef     struct{ Name, Namespace string }
			Containers []struct {
				Name   string
				Memory struct{ WorkingSetBytes int64 }
			}
		}
	}
	if err := json.Unmarshal([]byte(summary), &all); err != nil {
		return nil
	}
	var out []string
	for _, pod := range all.Pods {
		if pod.PodRef.Namespace != namespace {
			continue
		}
		for _, c := range pod.Containers {
			if mib := c.Memory.WorkingSetBytes >> 20; mib > 0 {
				out = append(out, fmt.Sprintf("%s of pod %s takes %d MiB", c.Name, pod.PodRef.Name, mib))
			}
		}
	}
	return out
}

// gatewayValues have the manager make routes for the Gateway, with hosts that lead to this machine.
func gatewayValues() map[string]any {
	return map[string]any{"enableGatewayApi": true, "kserveIngressGateway": gatewayName, "ingressDomain": localDomain}
}
