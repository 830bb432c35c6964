// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	frontNamespace = "e2e-front"
	// Where `make up` has put the gateway.
	gateNamespace, gateName = "kserve", "kserve-ingress-gateway"
	envoyNamespace          = "envoy-gateway-system"
	envoyDeployment         = "deployment/envoy-kserve-kserve-ingress-gateway-deaaa49b" // of the Gateway of all services
)

// door is the gateway of the cluster: Envoy, which Envoy Gateway configures.
type door struct{ cluster }

// gatewayIsThere: `make up` leaves it out, with a line that says so, where another program has its port.
func (c cluster) gatewayIsThere() {
	if c.mustKubectl("get", "deployment", "envoy-gateway", "-n", envoyNamespace, "--ignore-not-found", "-o", "name") == "" {
		c.Fatal("there is no gateway: end what listens at 127.0.0.1:80, and try again")
	}
	c.mustKubectl("wait", "-n", gateNamespace, "--for=condition=Programmed", "--timeout=5m", "gateway/"+gateName)
	curl, err := exec.LookPath("curl")
	if err != nil {
		c.Skip("there is no curl to paste a URL into")
	}
	at := c.mustKubectl("get", "inferenceservice", "iris", "-n", "default", "-o", "jsonpath={.status.url}") + "/v1/models/iris:predict"
	answered := c.flowers()
	c.eventually("an answer at "+at, func() error {
		out, err := c.run(c.Context(), curl, "--silent", "--show-error", "--fail-with-body", "--max-time", "30", "--noproxy", "*",
			"--json", "@examples/onnx/iris/request-v1.json", at)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		_, err = answered([]byte(out))
		return err
	})
}

// frontDoor has the services of these parts ready. Whoever comes first brings them.
func (c cluster) frontDoor() door {
	c.Helper()
	d := door{c}
	if c.mustKubectl("get", "namespace", frontNamespace, "--ignore-not-found", "-o", "name") != "" {
		return d
	}
	c.models(frontNamespace)
	c.mustKubectl("apply", "-n", frontNamespace, "-f", c.manifest("frontdoor.yaml",
		"${TRANSFORMER}", c.image("modelplane-transformer"), "${ECHO}", c.image("modelplane-echo")))
	for _, service := range []string{"one", "other", "whole", "slow"} {
		d.ready("inferenceservice", service)
	}
	return d
}

func (d door) ready(kind, name string) {
	d.Helper()
	d.eventually(kind+" "+name+" ready", func() error {
		out, err := d.kubectl("wait", "-n", frontNamespace, "--for=condition=Ready", "--timeout=10s", kind+"/"+name)
		if err == nil {
			return nil
		}
		state, _ := d.kubectl("get", kind, name, "-n", frontNamespace, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")]}`)
		return fmt.Errorf("%s: %s", out, state)
	})
}

// address of the proxy in the cluster. It is another one when the gateway was made anew.
func (d door) address() string {
	d.Helper()
	return d.mustKubectl("get", "services", "-n", envoyNamespace, "-l",
		"gateway.envoyproxy.io/owning-gateway-name="+gateName, "-o", "jsonpath={.items[0].spec.clusterIP}")
}

// host is that of the URL in the status.
func (d door) host(kind, name string) string {
	d.Helper()
	return d.hostIn(frontNamespace, kind, name)
}

// hostIn wants a URL that has neither a port nor a path.
func (d door) hostIn(namespace, kind, name string) string {
	d.Helper()
	text := d.mustKubectl("get", kind, name, "-n", namespace, "-o", "jsonpath={.status.url}")
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Port() != "" || u.Path != "" {
		d.Fatalf("the URL of %s %s is %q: %v", kind, name, text, err)
	}
	return u.Host
}

// to asks a service, by its URL, for the classes of irises.
func (d door) to(service string) target {
	d.Helper()
	return d.outside(frontNamespace, service)
}

func (d door) outside(namespace, service string) target {
	d.Helper()
	return target{
		url: "http://" + d.address() + "/v1/models/" + service + ":predict", host: d.hostIn(namespace, "inferenceservice", service),
		body: d.irisQuestion(), from: d.flowers(),
	}
}

func (d door) toGraph(name string) target {
	d.Helper()
	return target{url: "http://" + d.address() + "/", host: d.host("inferencegraph", name), body: d.irisQuestion(), from: d.flowers()}
}

// all wants every answer from one.
func (d door) all(what string, t target, who string, questions int) {
	d.Helper()
	d.firstAnswer(t)
	if n := d.count(t, questions); n.answers[who] != questions {
		d.Errorf("%s: want %d answers from %s; %v", what, questions, who, n)
	}
}

// urlAnswers asks at the URL of the status, over HTTP and gRPC.
func (c cluster) urlAnswers() {
	d := c.frontDoor()
	d.all("over HTTP", d.to("one"), "iris", 40)
	d.overGRPC(d.host("inferenceservice", "one"))
	component := d.mustKubectl("get", "inferenceservice", "one", "-n", frontNamespace, "-o", "jsonpath={.status.components.predictor.url}")
	predictor := d.to("one")
	predictor.host = strings.TrimPrefix(component, "http://")
	d.all("at the predictor's own host", predictor, "iris", 8)
}

// overGRPC wants the classes of irises from the port that serves HTTP, too.
func (d door) overGRPC(host string) {
	d.Helper()
	conn, err := grpc.NewClient("passthrough:///"+d.address()+":80", grpc.WithAuthority(host),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(wire{})))
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	request, known := d.inferRequest("iris", "one"), d.classes("iris")
	d.eventually("the right classes over gRPC", func() error {
		ctx, cancel := context.WithTimeout(d.Context(), 10*time.Second)
		defer cancel()
		var answer []byte
		if err := conn.Invoke(ctx, "/inference.GRPCInferenceService/ModelInfer", request, &answer); err != nil {
			return err
		}
		got, err := classesIn(answer)
		if err == nil && !slices.Equal(got, known) {
			err = fmt.Errorf("the model says %v, want %v", got, known)
		}
		return err
	})
}

// componentsAnswer asks a transformer and an explainer, and wants time limits kept.
func (c cluster) componentsAnswer() {
	d := c.frontDoor()
	d.transformerAnswers(d.to("whole"))
	d.explainerAnswers("http://"+d.address()+"/v1/models/whole:explain", d.host("inferenceservice", "whole"))
	d.timeLimitIsKept()
}

// otherAddressesAnswer asks at another domain, below a path, and over TLS.
func (c cluster) otherAddressesAnswer() {
	d := c.frontDoor()
	d.changeIngress(map[string]any{"pathTemplate": "/serving/{{ .Namespace }}/{{ .Name }}", "additionalIngressDomains": []string{"models.test"}})
	other := d.to("one")
	other.host = strings.TrimSuffix(other.host, d.ingressDomain()) + "models.test"
	d.all("at another domain", other, "iris", 8)
	path := d.to("one")
	path.url = "http://" + d.address() + "/serving/" + frontNamespace + "/one/v1/models/one:predict"
	path.host = d.ingressDomain()
	d.all("below its path", path, "iris", 8)
	d.explainerAnswers("http://"+d.address()+"/serving/"+frontNamespace+"/whole/v1/models/whole:explain", d.ingressDomain())
	d.overTLS()
}

func (d door) transformerAnswers(t target) {
	d.Helper()
	t.body = []byte(`{"flowers":[{"sepal":[5.1,3.5],"petal":[1.4,0.2]}]}`)
	t.from = func(answer []byte) (string, error) {
		var got struct{ Names []string }
		if err := json.Unmarshal(answer, &got); err != nil || !slices.Equal(got.Names, []string{"setosa"}) {
			return "", fmt.Errorf("it says %s", answer)
		}
		return "transformer", nil
	}
	d.all("with the transformer's words", t, "transformer", 40)
}

// explainerAnswers wants the name of the explainer's pod.
func (d door) explainerAnswers(at, host string) {
	d.Helper()
	d.eventually("an answer of the explainer at "+at, func() error {
		out, code, err := d.getAt(at, host)
		if err == nil && (code != http.StatusOK || !strings.HasPrefix(out, "whole-explainer-")) {
			err = fmt.Errorf("%d: %s", code, out)
		}
		return err
	})
}

func (d door) getAt(at, host string) (string, int, error) {
	request, err := http.NewRequestWithContext(d.Context(), http.MethodGet, at, nil)
	if err != nil {
		return "", 0, err
	}
	request.Host = host
	response, err := fresh.Do(request)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return strings.TrimSpace(string(body)), response.StatusCode, err
}

// timeLimitIsKept has a server wait for one that never answers.
func (d door) timeLimitIsKept() {
	d.Helper()
	deaf, err := net.Listen("tcp", net.JoinHostPort(d.nodeAddress(), "0"))
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = deaf.Close() }()
	at := "http://" + d.address() + "/ask?url=" + url.QueryEscape("http://"+deaf.Addr().String()+"/")
	host := d.host("inferenceservice", "slow")
	d.eventually("a request that is ended", func() error {
		began := time.Now()
		out, code, err := d.getAt(at, host)
		if err != nil {
			return err
		}
		if took := time.Since(began); code != http.StatusGatewayTimeout || took < 900*time.Millisecond || took > 4*time.Second {
			return fmt.Errorf("after %v: %d %s", took, code, out)
		}
		return nil
	})
}

func (c cluster) nodeAddress() string {
	c.Helper()
	return c.mustKubectl("get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
}

// overTLS gives the Gateway a listener with a certificate until the part ends.
func (d door) overTLS() {
	d.Helper()
	host := d.host("inferenceservice", "one")
	certificate, key, pool := d.certificate(host)
	d.mustKubectl("create", "secret", "tls", "e2e-front", "-n", gateNamespace, "--cert", certificate, "--key", key)
	d.Cleanup(func() { d.undo("delete", "secret", "e2e-front", "-n", gateNamespace) })
	d.patchGate(`[{"op":"add","path":"/spec/listeners/-","value":{"name":"https","protocol":"HTTPS","port":443,
		"tls":{"certificateRefs":[{"name":"e2e-front"}]},"allowedRoutes":{"namespaces":{"from":"All"}}}}]`)
	d.Cleanup(func() { d.undo(gatePatch(`[{"op":"remove","path":"/spec/listeners/1"}]`)...) })
	t := d.to("one")
	t.url = "https" + strings.TrimPrefix(t.url, "http")
	client := &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: host}, ForceAttemptHTTP2: true, DisableKeepAlives: true,
	}}
	d.eventually("an answer over TLS", func() error {
		who, err := t.ask(d.Context(), client)
		if err == nil && who != "iris" {
			err = fmt.Errorf("it comes from %s", who)
		}
		return err
	})
}

// certificate is signed by itself.
func (d door) certificate(host string) (certificate, key string, pool *x509.CertPool) {
	d.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		d.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2e"}, DNSNames: []string{host}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	raw, keyErr := x509.MarshalPKCS8PrivateKey(private)
	if err := errors.Join(err, keyErr); err != nil {
		d.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(public)
	certificate, key = filepath.Join(d.TempDir(), "tls.crt"), filepath.Join(d.TempDir(), "tls.key")
	if err := errors.Join(os.WriteFile(certificate, public, 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600)); err != nil {
		d.Fatal(err)
	}
	return certificate, key, pool
}

// ingressSettings are what the platform's configuration says of the way in, as text and as a map.
func (c cluster) ingressSettings() (string, map[string]any) {
	c.Helper()
	text := c.mustKubectl("get", "configmap", "inferenceservice-config", "-n", managerNamespace, "-o", "jsonpath={.data.ingress}")
	settings := map[string]any{}
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		c.Fatal(err)
	}
	return text, settings
}

func (c cluster) ingressDomain() string {
	c.Helper()
	_, settings := c.ingressSettings()
	domain, ok := settings["ingressDomain"].(string)
	if !ok {
		c.Fatalf("no ingressDomain in %v", settings)
	}
	return domain
}

// changeIngress changes settings of the way in until the part ends.
func (c cluster) changeIngress(to map[string]any) {
	c.Helper()
	before, settings := c.ingressSettings()
	maps.Copy(settings, to)
	after, err := json.Marshal(settings)
	if err != nil {
		c.Fatal(err)
	}
	c.mustKubectl(ingressIs(string(after))...)
	c.Cleanup(func() { c.undo(ingressIs(before)...) })
}

// ingressIs is what kubectl is told to change the platform's configuration.
func ingressIs(settings string) []string {
	patch := fmt.Sprintf(`{"data":{"ingress":%q}}`, settings)
	return []string{"patch", "configmap", "inferenceservice-config", "-n", managerNamespace, "--type=merge", "-p", patch}
}

func gatePatch(patch string) []string {
	return []string{"patch", "gateway", gateName, "-n", gateNamespace, "--type=json", "-p", patch}
}

func (d door) patchGate(patch string) {
	d.Helper()
	d.mustKubectl(gatePatch(patch)...)
}

func (d door) change(service, patch string) {
	d.Helper()
	d.mustKubectl("patch", "inferenceservice", service, "-n", frontNamespace, "--type=merge", "-p", patch)
}

// receiver takes copies of requests and answers.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	seen map[string][]string // bodies by the id of the request, with their types in front
}

func (d door) receive() *receiver {
	d.Helper()
	r := &receiver{seen: map[string][]string{}}
	listener, err := net.Listen("tcp", net.JoinHostPort(d.nodeAddress(), "0"))
	if err != nil {
		d.Fatal(err)
	}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(r.take))
	if err := r.Listener.Close(); err != nil {
		d.Fatal(err)
	}
	r.Listener = listener
	r.Start()
	d.Cleanup(r.Close)
	return r
}

func (r *receiver) take(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(io.LimitReader(request.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := request.Header.Get("Ce-Id")
	r.seen[id] = append(r.seen[id], request.Header.Get("Ce-Type")+" "+string(bytes.TrimSpace(body)))
}

// pairs are the requests of which both the question and the answer were seen.
func (r *receiver) pairs(request string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, seen := range r.seen {
		slices.Sort(seen)
		if len(seen) == 2 && seen[0] == "org.kubeflow.serving.inference.request "+request &&
			strings.HasPrefix(seen[1], "org.kubeflow.serving.inference.response {") {
			n++
		}
	}
	return n
}

// requestsAreLoggedAndBatched looks at a receiver of logs, and at how many questions a model was asked.
func (c cluster) requestsAreLoggedAndBatched() {
	d := c.frontDoor()
	receiver := d.receive()
	file := d.manifest("frontdoor-agent.yaml", "${RECEIVER}", receiver.Listener.Addr().String())
	d.mustKubectl("apply", "-n", frontNamespace, "-f", file)
	d.Cleanup(func() { d.undo("delete", "-n", frontNamespace, "-f", file) })
	d.ready("inferenceservice", "logged")
	d.ready("inferenceservice", "batched")

	logged := d.to("logged")
	d.firstAnswer(logged)
	const questions = 40
	if n := d.count(logged, questions); n.answers["iris"] != questions {
		d.Errorf("want %d answers; %v", questions, n)
	}
	d.eventually("copies of all requests and answers", func() error {
		if got := receiver.pairs(string(bytes.TrimSpace(logged.body))); got < questions {
			return fmt.Errorf("%d of %d", got, questions)
		}
		return nil
	})
	d.batchIsOneQuestion()
}

// batchIsOneQuestion asks for eight flowers at the same time.
func (d door) batchIsOneQuestion() {
	d.Helper()
	var rows struct{ Instances []json.RawMessage }
	if err := json.Unmarshal(d.irisQuestion(), &rows); err != nil {
		d.Fatal(err)
	}
	known := d.irisClasses()
	batched := d.to("batched")
	d.firstAnswer(batched) // of more rows than a batch has
	before := d.served("batched-predictor")
	const together = 8
	errs := make(chan error, together)
	for i := range together {
		row := i % len(known)
		t := batched
		t.body, _ = json.Marshal(map[string]any{"instances": rows.Instances[row : row+1]})
		t.from = func(answer []byte) (string, error) {
			var got struct{ Predictions []int }
			if err := json.Unmarshal(answer, &got); err != nil || !slices.Equal(got.Predictions, known[row:row+1]) {
				return "", fmt.Errorf("row %d: %s", row, answer)
			}
			return "", nil
		}
		go func() {
			_, err := t.ask(d.Context(), fresh)
			errs <- err
		}()
	}
	for range together {
		if err := <-errs; err != nil {
			d.Error(err)
		}
	}
	asked := d.served("batched-predictor") - before
	d.Logf("%d requests became %d", together, asked)
	if asked < 1 || asked > together/2 {
		d.Errorf("the model was asked %d times for %d requests", asked, together)
	}
}

// served is how many requests the pods of a Deployment have answered, by their own count.
func (d door) served(deployment string) int {
	d.Helper()
	out := d.mustKubectl("get", "pods", "-n", frontNamespace, "-l", "app=isvc."+deployment, "-o", "jsonpath={.items[*].status.podIP}")
	sum := 0
	for address := range strings.FieldsSeq(out) {
		sum += d.servedBy(address)
	}
	return sum
}
