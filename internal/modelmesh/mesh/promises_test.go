// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// metric is the value of one line of a pod's metrics, which must be on; empty when there is none.
func metric(t *testing.T, port int, line string) string {
	t.Helper()
	for text := range strings.SplitSeq(fetch(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", port)), "\n") {
		if value, ok := strings.CutPrefix(text, line+" "); ok {
			return value
		}
	}
	return ""
}

func metricsAt(port int) string {
	return fmt.Sprintf("MM_METRICS=prometheus:port=%d;scheme=http", port)
}

// taker keeps payloads that it is sent.
type taker struct {
	*httptest.Server
	mu   sync.Mutex
	got  map[string][]map[string]any // by path
	hold chan struct{}               // what it waits for before it answers; nil: nothing
}

func newTaker(t *testing.T) *taker {
	t.Helper()
	p := &taker{got: map[string][]map[string]any{}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var one map[string]any
		raw, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		hold := p.hold
		if err := json.Unmarshal(raw, &one); err == nil {
			p.got[r.URL.Path] = append(p.got[r.URL.Path], one)
		}
		p.mu.Unlock()
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *taker) at(path string) []map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got[path])
}

// TestPayloads: processors get what they asked for, whichever instance was called, and a slow one makes no call wait.
func TestPayloads(t *testing.T) {
	t.Parallel()
	to := newTaker(t)
	ports := []int{freePort(t), freePort(t)}
	c := newCluster(t, false, "MM_PAYLOAD_PROCESSORS="+to.URL+"/one?one#test.Model/Call "+to.URL+"/all logger://")
	a, b := c.pod("pod-a", metricsAt(ports[0])), c.pod("pod-b", metricsAt(ports[1]))
	c.ready(a, b)
	a.register("one", "", "", true, true)
	a.register("two", "", "", true, true)
	for _, p := range []*pod{a, b} {
		if _, _, _, err := p.call(within(t, patience), "hello", "mm-model-id", "one", "authorization", "Bearer secret", "x-given", "kept"); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, _, err := a.call(within(t, patience), "refuse", "mm-model-id", "two"); status.Code(err) != codes.OutOfRange {
		t.Fatal(err)
	}
	eventually(t, "all payloads arrive", func() error {
		if one, all := len(to.at("/one")), len(to.at("/all")); one != 4 || all != 6 {
			return fmt.Errorf("%d of model one and %d in all", one, all)
		}
		return nil
	})
	kinds := map[any][]string{}
	for _, p := range to.at("/one") {
		kinds[p["id"]] = append(kinds[p["id"]], p["kind"].(string))
		text := fmt.Sprint(p)
		if p["modelid"] != "one" || strings.Contains(text, "secret") {
			t.Errorf("payload %v", p)
		}
		if p["kind"] == "request" && (p["data"] != "aGVsbG8=" || !strings.Contains(text, "x-given:kept")) { // hello
			t.Errorf("request %v", p)
		}
		if p["kind"] == "response" && p["status"] != "OK" {
			t.Errorf("response %v", p)
		}
	}
	if len(kinds) != 2 {
		t.Errorf("requests and responses do not belong together: %v", kinds)
	}
	if refused := slices.IndexFunc(to.at("/all"), func(p map[string]any) bool { return p["status"] == "OutOfRange" }); refused < 0 {
		t.Error("nobody heard of the refusal")
	}
	hold := make(chan struct{})
	defer close(hold)
	to.mu.Lock()
	to.hold = hold
	to.mu.Unlock()
	for range 150 {
		a.mustCall("one")
		b.mustCall("two")
	}
	eventually(t, "what cannot be handed on is counted", func() error {
		for _, port := range ports {
			if metric(t, port, `modelmesh_payloads_dropped{reason="full"}`) != "" {
				return nil
			}
		}
		return errors.New("it is not")
	})
}

// secret writes a certificate and its key as a mounted Secret has them.
func secret(t *testing.T, dir string) *tls.Certificate {
	t.Helper()
	pair, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return pair
}

// TestCertificateRotates: clients see a new certificate without a restart, and an instance that never had the old one is
// understood by those that did.
func TestCertificateRotates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := secret(t, dir)
	cert := filepath.Join(dir, "tls.crt")
	c := newCluster(t, false, "MM_TLS_KEY_CERT_PATH="+cert, "MM_TLS_PRIVATE_KEY_PATH="+filepath.Join(dir, "tls.key"))
	pods := c.start("pod-a", "pod-b")
	roots := x509.NewCertPool()
	roots.AddCert(before.Leaf)
	dial := func(p *pod) *pod {
		conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", p.port), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newRawCodec())),
			grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12})))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return &pod{cluster: p.cluster, name: p.name, conn: conn}
	}
	dial(pods[0]).register("one", "", "", true, true)
	by := dial(pods[1]).mustCall("one")
	after := secret(t, dir)
	roots = roots.Clone()
	roots.AddCert(after.Leaf)
	for _, p := range pods {
		eventually(t, "the new certificate is shown", func() error {
			conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.port), &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			if got := conn.ConnectionState().PeerCertificates[0]; !got.Equal(after.Leaf) {
				return errors.New("it is the old one")
			}
			return nil
		})
	}
	for _, p := range append(pods, c.start("pod-late")...) {
		if again := dial(p).mustCall("one"); again != by {
			t.Errorf("%s: answered by %s, though %s has it", p.name, again, by)
		}
	}
}

// inEtcd lets something be done in the etcd of a cluster.
func (c *cluster) inEtcd(do func(*clientv3.Client) error) {
	c.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{fmt.Sprintf("http://127.0.0.1:%d", c.etcd.client)}})
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if err := do(client); err != nil {
		c.t.Fatal(err)
	}
}

// record is the lease of the record of an instance, 0 when there is none.
func (p *pod) record() (lease int64) {
	p.t.Helper()
	p.inEtcd(func(client *clientv3.Client) error {
		answer, err := client.Get(within(p.t, patience), "/mm/"+p.service+"/instances/"+p.name)
		if err == nil && len(answer.Kvs) > 0 {
			lease = answer.Kvs[0].Lease
		}
		return err
	})
	return lease
}

// set writes a setting into etcd; empty removes it.
func (c *cluster) set(t *testing.T, name, value string) {
	t.Helper()
	key := "/mm/" + c.service + "/config/" + name
	c.inEtcd(func(client *clientv3.Client) (err error) {
		if value == "" {
			_, err = client.Delete(within(t, patience), key)
		} else {
			_, err = client.Put(within(t, patience), key, value)
		}
		return err
	})
}

// TestSettingsInEtcd: what is written there counts at once in every process, and what cannot be understood is told.
func TestSettingsInEtcd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, "MM_RATE_PERIOD=300ms")
	pods := c.start("pod-a", "pod-b")
	a, b := pods[0], pods[1]
	says := func(p *pod, words string) {
		t.Helper()
		eventually(t, p.name+" says "+words, func() error {
			if !strings.Contains(p.mesh.log.String(), words) {
				return errors.New("it does not")
			}
			return nil
		})
	}
	a.register("one", "", "", true, true)
	a.mustCall("one")
	if text := a.mesh.log.String(); strings.Contains(text, "msg=Answered") || strings.Contains(text, "level=debug") {
		t.Errorf("the log says much:\n%s", text)
	}
	c.set(t, "log_each_invocation", "true")
	c.set(t, "logger_level", "debug")
	eventually(t, "each call is in the log", func() error {
		for _, p := range pods {
			p.mustCall("one")
			if !strings.Contains(p.mesh.log.String(), "msg=Answered") {
				return errors.New("it is not in that of " + p.name)
			}
		}
		return nil
	})
	a.register("two", "", "", true, true)
	eventually(t, "details are in the log", func() error {
		if !strings.Contains(a.mesh.log.String()+b.mesh.log.String(), "level=debug") {
			return errors.New("they are not")
		}
		return nil
	})
	c.set(t, "send_destination_id", "true")
	c.set(t, "scaleup_rpm_threshold", "60")
	calls := load(t, 2, []string{"one"}, func() []*pod { return pods })
	eventually(t, "a model that is called as often as that gets another copy", func() error {
		if got := a.loadedIn("one"); len(got) != 2 {
			return fmt.Errorf("it is loaded in %v", got)
		}
		return nil
	})
	calls.end(t)
	for name, value := range map[string]string{"logger_level": "loud", "log_each_invocation": "maybe", "send_destination_id": "1", "scaleup_rpm_threshold": "3"} {
		c.set(t, name, value)
		says(a, "setting="+name+" value="+value)
	}
	c.set(t, "colour", "blue")
	says(b, "is unknown and has no effect")
	c.set(t, "disable", "true")
	late := c.pod("pod-late")
	says(late, "the setting disable in etcd keeps instances of this service from starting")
	<-late.mesh.done
	a.mustCall("one")
}

// TestFailFast: a new version that cannot load what others have loaded does not become ready, and takes nothing from them.
func TestFailFast(t *testing.T) {
	t.Parallel()
	const longest = 3 * time.Second
	c := newCluster(t, false, "MM_RATE_PERIOD=300ms", "MM_REAPER_PERIOD=300ms", loadLimit+"="+longest.String())
	a := c.start("pod-a")[0]
	var models []string
	for i := range 4 {
		id := fmt.Sprintf("m%d", i)
		a.register(id, "", `{"min_copies":2}`, true, true)
		models = append(models, id)
	}
	settled := time.NewTimer(longest + time.Second) // longer than a load may take
	<-settled.C
	bad, tolerated := c.pod("pod-bad", faulty+"=true"), c.pod("pod-kept", faulty+"=true", "MM_FAILFAST_UPGRADE_ENABLED=false")
	eventually(t, "the faulty instance says that it is not ready", func() error {
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/ready", bad.probe))
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		said, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(said), "fail to load here") {
			return fmt.Errorf("%s: %s", answer.Status, said)
		}
		return nil
	})
	c.ready(tolerated)
	for _, id := range models {
		if by := a.mustCall(id); by != a.name {
			t.Errorf("%s is answered by %s", id, by)
		}
	}
}

// TestLatency: where a runtime answers one call of a model at a time, a model that is busy all the time gets another copy
// however few calls that are, and metrics tell how long calls waited for each other.
func TestLatency(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	c := newCluster(t, false, limited+"=20ms", "MM_RATE_PERIOD=400ms", "MM_SCALEUP_RPM_THRESHOLD=1000000")
	a := c.pod("pod-a", metricsAt(port))
	c.ready(a)
	b := c.start("pod-b")[0]
	a.register("calm", "", "", true, true)
	a.register("busy", "", "", true, true)
	a.mustCall("calm")
	calls := load(t, 4, []string{"busy"}, func() []*pod { return []*pod{a} })
	eventually(t, "the busy model gets another copy", func() error {
		if got := a.loadedIn("busy"); len(got) != 2 {
			return fmt.Errorf("it is loaded in %v", got)
		}
		return nil
	})
	calls.more(t, 50)
	calls.end(t)
	if got := b.loadedIn("calm"); len(got) != 1 {
		t.Errorf("the calm model is loaded in %v", got)
	}
	if got := metric(t, port, "modelmesh_req_queue_delay_milliseconds_count"); got == "" || got == "0" {
		t.Errorf("%q calls waited", got)
	}
}

// TestThirdCopyGoes: the copies that a busy model got beyond the second go when memory is short and it is calm again, and one
// stays whatever happens.
func TestThirdCopyGoes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, "MM_SCALEUP_RPM_THRESHOLD=600", "MM_RATE_PERIOD=500ms", "MM_JANITOR_PERIOD=400ms", "MM_THIRD_COPY_FOR=1s")
	pods := c.start("pod-a", "pod-b", "pod-d")
	a := pods[0]
	a.register("busy", "", "", true, true)
	copies := func(enough func(int) bool) func() error {
		return func() error {
			if got := a.loadedIn("busy"); !enough(len(got)) {
				return fmt.Errorf("it is loaded in %v", got)
			}
			return nil
		}
	}
	calls := load(t, 4, []string{"busy"}, func() []*pod { return pods })
	eventually(t, "a busy model gets copies everywhere", copies(func(n int) bool { return n == 3 }))
	calls.end(t)
	for i := range 9 { // all memory that is left, in every pod
		a.register(fmt.Sprintf("m%d", i), "", `{"min_copies":3}`, true, true)
	}
	pace := time.NewTicker(500 * time.Millisecond)
	defer pace.Stop()
	fewer := copies(func(n int) bool { return n <= 2 })
	eventually(t, "the third copy goes", func() error {
		<-pace.C
		for _, p := range pods { // each copy is used now and then
			if _, _, _, err := p.call(within(t, patience), "hello", "mm-model-id", "busy", "mm-balanced", "true"); err != nil {
				return err
			}
		}
		return fewer()
	})
	given := slices.ContainsFunc(pods, func(p *pod) bool {
		return strings.Contains(p.mesh.log.String(), `"A copy of a model that others have is given up" model=busy copies=3`)
	})
	if !given {
		t.Error("nobody gave it up; it must have been pushed out")
	}
	a.mustCall("busy")
}

// TestBalanced: a client that spreads its calls itself is answered where it asks; others are sent to whoever is less busy.
func TestBalanced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, limited+"=30ms", "MM_RATE_PERIOD=300ms")
	pods := c.start("pod-a", "pod-b")
	b := pods[1]
	b.register("one", "", `{"min_copies":2}`, true, true)
	eventually(t, "both have it", func() error {
		if got := b.loadedIn("one"); len(got) != 2 {
			return fmt.Errorf("it is loaded in %v", got)
		}
		return nil
	})
	answers := func(message string, header ...string) map[string]int {
		var mu sync.Mutex
		out := map[string]int{}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				by, _, _, err := b.call(within(t, patience), message, append(header, "mm-model-id", "one")...)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				out[by]++
			})
		}
		all.Wait()
		return out
	}
	if got := answers("hello", "mm-balanced", "true"); len(got) != 1 || got[b.name] != 8 {
		t.Errorf("a balanced client is answered by %v", got)
	}
	// No call is answered before there is one in either runtime, so that they are there at the same time however slow the
	// machine is. Calls that all go to one instance wait for each other in vain.
	var mu sync.Mutex
	there, both := map[string]bool{}, make(chan struct{})
	meeting := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if there[r.URL.Path] = true; len(there) == 2 {
			select {
			case <-both:
			default:
				close(both)
			}
		}
		mu.Unlock()
		select {
		case <-both:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(meeting.Close)
	if got := answers(meet + meeting.URL); len(got) != 2 {
		t.Errorf("any other client is answered by %v", got)
	}
}

// TestInjection: a runtime that wants the id inside the message gets that of the model there, whatever name the client
// used, and all else as it was sent. Methods that it does not have are refused, and its own are not for clients.
func TestInjection(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, injected+"=test.Model/Call", `MM_DATAPLANE_CONFIG={"rpcConfigs":{"test.Model/Call":{"idExtractionPath":[1],"vModelId":true}},"allowOtherRpcs":true}`)
	pods := c.start("pod-a", "pod-b")
	if _, err := pods[0].api().SetVModel(within(t, patience), &wire.SetVModelRequest{
		VModelId: "name", TargetModelId: "model-7", ModelInfo: &wire.ModelInfo{Type: "mt:test"}, LoadNow: true, Sync: true,
	}); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		_, model, answer, err := p.call(within(t, patience), "\x12\x03xyz\x0a\x04name\x18\x05")
		if want := "\x12\x03xyz\x0a\x07model-7\x18\x05"; err != nil || model != "model-7" || answer != want {
			t.Errorf("%s: the runtime got %q of %q, %v", p.name, answer, model, err)
		}
		for method, header := range map[string]string{"/test.Model/Else": "model-7", "/mmesh.ModelRuntime/unloadModel": "model-7"} {
			ctx := metadata.AppendToOutgoingContext(within(t, patience), "mm-model-id", header)
			if err := p.conn.Invoke(ctx, method, newFrame(nil), &frame{}); status.Code(err) != codes.Unimplemented {
				t.Errorf("%s: %s: %v", p.name, method, err)
			}
		}
	}
}

// TestSeveral: a call that names several models gets all answers behind each other.
func TestSeveral(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, "MM_MULTI_PARALLELISM=2")
	a := c.start("pod-a")[0]
	for _, id := range []string{"one", "two", "three"} {
		a.register(id, "", "", false, false)
	}
	ask := func(header ...string) (string, error) {
		var got frame
		defer got.free()
		err := a.conn.Invoke(metadata.AppendToOutgoingContext(within(t, patience), header...), "/test.Model/Call", newFrame([]byte("hello")), &got)
		if err != nil {
			return "", err
		}
		return string(got.data.Materialize()), nil
	}
	model := func(ids ...string) (out []string) {
		for _, id := range ids {
			out = append(out, "mm-model-id", id)
		}
		return out
	}
	for name, one := range map[string]struct {
		header []string
		want   string
		code   codes.Code
	}{
		"all there":              {model("one", "two", "three"), "pod-a|one|hellopod-a|two|hellopod-a|three|hello", codes.OK},
		"one is enough":          {model("nobody", "two"), "pod-a|two|hello", codes.OK},
		"any is said":            {append(model("nobody", "two"), "mm-required", "any"), "pod-a|two|hello", codes.OK},
		"all are required":       {append(model("two", "nobody"), "mm-required", "all"), "", codes.NotFound},
		"nobody is there":        {model("nobody", "no one"), "", codes.NotFound},
		"what is not understood": {append(model("one", "two"), "mm-required", "most"), "", codes.InvalidArgument},
		"two kinds of ids":       {append(model("one", "two"), "mm-vmodel-id", "x"), "", codes.InvalidArgument},
		"too many":               {model(slices.Repeat([]string{"one"}, mostSeveral+1)...), "", codes.InvalidArgument},
	} {
		if got, err := ask(one.header...); got != one.want || status.Code(err) != one.code {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	stream, err := a.conn.NewStream(metadata.AppendToOutgoingContext(within(t, patience), model("one", "two")...), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Model/Talk")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := stream.SendMsg(newFrame([]byte("hello"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.RecvMsg(&frame{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("two messages: %v", err)
	}
}

// TestWrongPathWithoutRoom: a new model that does not fit waits until it is asked for; that its path is wrong is known before.
func TestWrongPathWithoutRoom(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	c := newCluster(t, false)
	a := c.pod("pod-a", metricsAt(port))
	c.ready(a)
	for i := range 12 { // as many as fit, and more
		id := fmt.Sprintf("m%d", i)
		a.register(id, "", "", false, false)
		a.mustCall(id)
	}
	good := a.register("good", "", "", true, false)
	if good.Status != wire.ModelStatusInfo_NOT_LOADED || len(good.Errors) != 1 || !strings.Contains(good.Errors[0], "the model good does not fit") {
		t.Errorf("the model that has no room is %v", good)
	}
	a.register("bad", "broken:", "", true, false)
	eventually(t, "the wrong path is known", func() error {
		if info := a.status("bad"); info.Status != wire.ModelStatusInfo_LOADING_FAILED || len(info.Errors) != 1 || info.Errors[0] != "there is no such file" {
			return fmt.Errorf("status %v", info)
		}
		return nil
	})
	if info := a.status("good"); info.Status != good.Status {
		t.Errorf("the model with the right path is %v", info)
	}
	if got := metric(t, port, "modelmesh_loadmodel_failure"); got != "0" {
		t.Errorf("%s loads failed, though none should have begun", got)
	}
}

// TestTooLarge: a model that no amount of waiting makes fit has failed, and that is what everybody is told, at once and later.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false)
	a := c.pod("pod-a")
	c.ready(a)
	info := a.register("huge", "", `{"size_bytes":1099511627776}`, true, false)
	const want = "the model huge needs 1048576 MiB"
	if info.Status != wire.ModelStatusInfo_LOADING_FAILED || len(info.Errors) != 1 || !strings.Contains(info.Errors[0], want) {
		t.Errorf("it is %v", info)
	}
	eventually(t, "the failure is in the record", func() error {
		if info := a.status("huge"); info.Status != wire.ModelStatusInfo_LOADING_FAILED || len(info.Errors) != 1 || !strings.Contains(info.Errors[0], want) {
			return fmt.Errorf("status %v", info)
		}
		return nil
	})
}

// TestMetricsOptions: methods are told by their own names or in full, and memory in detail or not at all.
func TestMetricsOptions(t *testing.T) {
	t.Parallel()
	short, full := freePort(t), freePort(t)
	c := newCluster(t, false)
	a, b := c.pod("pod-a", metricsAt(short)+";mem_detail=gc,mp"), c.pod("pod-b", metricsAt(full)+";fq_names=true;mem_detail=none")
	c.ready(a, b)
	a.register("one", "", "", false, false)
	a.mustCall("one")
	b.mustCall("one")
	const calls = `modelmesh_api_request_milliseconds_count{code="OK",method="%s"}`
	for port, method := range map[int]string{short: "Call", full: "test.Model/Call"} {
		if got := metric(t, port, fmt.Sprintf(calls, method)); got != "1" {
			t.Errorf("%q calls of %s", got, method)
		}
	}
	if metric(t, short, "go_goroutines") == "" || metric(t, full, "go_goroutines") != "" || metric(t, full, "modelmesh_instance_models_total") == "" {
		t.Error("what is told of memory is not what was asked for")
	}
	set, err := parseMetrics("prometheus:mem_detail=gc,heap", "")
	if err != nil || !slices.Equal(set.unclear, []string{"mem_detail=heap"}) || set.noMemory {
		t.Errorf("%+v, %v", set, err)
	}
}

// TestMetricsBounded: whoever calls decides about methods and ids, and cannot fill memory with them; models that are gone are told
// of no more.
func TestMetricsBounded(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	c := newCluster(t, false)
	a := c.pod("pod-a", metricsAt(port)+";per_model_metrics=true")
	c.ready(a)
	a.register("one", "", "", true, true)
	call := func(method, name, id string) {
		ctx := metadata.AppendToOutgoingContext(within(t, patience), name, id)
		_ = a.conn.Invoke(ctx, method, newFrame([]byte("hello")), &frame{})
	}
	for i := range 2 * mostMethods {
		call(fmt.Sprintf("/test.Model/Call%d", i), "mm-model-id", "one")
	}
	for i := range 50 {
		call("/test.Model/Call1", "mm-model-id", fmt.Sprintf("nobody%d", i))
		call("/test.Model/Call1", "mm-vmodel-id", fmt.Sprintf("no-name%d", i))
	}
	const calls = "modelmesh_api_request_milliseconds_count"
	text := fetch(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
	if n := strings.Count(text, calls+"{"); n > mostMethods+10 {
		t.Errorf("there are %d lines of calls", n)
	}
	for _, want := range []string{calls + `{code="OK",method="Call7",modelId="one",vModelId=""} 1`, fmt.Sprintf(calls+`{code="OK",method="other",modelId="one",vModelId=""} %d`, mostMethods)} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
	if _, err := a.api().UnregisterModel(within(t, patience), &wire.UnregisterModelRequest{ModelId: "one"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is told of the model that is gone", func() error {
		if text := fetch(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", port)); strings.Contains(text, `modelId="one"`) {
			return errors.New("something is")
		}
		return nil
	})
}

// TestMessageMemory: however many large calls come at once, messages take a bounded part of memory; those for whom there is none are
// told so, and all is as before when the others have been answered.
func TestMessageMemory(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, "MM_MESSAGE_MEMORY_BYTES=50331648")
	pods := c.start("pod-a", "pod-b")
	pods[0].register("one", "", "", true, true)
	large := bytes.Repeat([]byte("x"), 8<<20)
	ask := func(p *pod) error {
		var got frame
		defer got.free()
		return p.conn.Invoke(metadata.AppendToOutgoingContext(within(t, time.Minute), "mm-model-id", "one"), "/test.Model/Call", newFrame(large), &got)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	told := map[codes.Code]int{}
	for i := range 120 {
		all.Go(func() {
			err := ask(pods[i%2])
			mu.Lock()
			defer mu.Unlock()
			told[status.Code(err)]++
			if err != nil && (status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "MM_MESSAGE_MEMORY_BYTES")) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Logf("%v", told)
	if told[codes.OK] == 0 || told[codes.ResourceExhausted] == 0 {
		t.Errorf("the answers are %v", told)
	}
	limit := int64(320 << 20)
	if raced() {
		limit *= 3 // the race detector keeps a multiple of what it watches
	}
	for _, p := range pods {
		if most := p.peak(); most > limit {
			t.Errorf("%s took %d MiB", p.name, most>>20)
		}
		eventually(t, "large calls are answered again by "+p.name, func() error { return ask(p) })
		for range 5 {
			if err := ask(p); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
	}
}

// raced tells whether the race detector is in the program, which is the mesh's as well.
func raced() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// peak is the most memory that the mesh of a pod ever had.
func (p *pod) peak() int64 {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.mesh.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	p.t.Fatal("nobody knows how much memory a process has")
	return 0
}

// TestLedger: what gRPC does not give back is noticed all the same, and those who came last are turned away first, and answers last.
func TestLedger(t *testing.T) {
	l := newLedger(1 << 20)
	func() {
		for range 8 {
			_ = l.Get(16 << 10)
		}
		l.Put(l.Get(16 << 10))
	}()
	deadline := time.Now().Add(patience)
	for l.taken.Load() != 0 && time.Now().Before(deadline) {
		runtime.GC()
	}
	if got := l.taken.Load(); got != 0 {
		t.Errorf("%d bytes are lent for ever", got)
	}
	var turned []int
	for i := range 3 {
		l.receive(i == 2, func(error) { turned = append(turned, i) })
	}
	var held []*[]byte
	for l.taken.Load() <= 2<<20 {
		held = append(held, l.Get(16<<10))
	}
	if !slices.Equal(turned, []int{1, 0, 2}) {
		t.Errorf("turned away: %v", turned)
	}
	if _, err := l.admit(t.Context(), nil); !isFull(err) {
		t.Errorf("another one is let in: %v", err)
	}
	for _, buffer := range held {
		l.Put(buffer)
	}
	if _, err := l.admit(t.Context(), nil); err != nil || l.taken.Load() != 0 {
		t.Errorf("nobody is let in: %v", err)
	}
}

// TestMeant: what is for another instance is refused, so that whoever asked goes elsewhere.
func TestMeant(t *testing.T) {
	m := &Mesh{set: &Settings{Instance: "a"}}
	for to, want := range map[string]bool{"": true, "a": true, "b": false} {
		err := m.meant(to)
		if o, ours := asOutcome(err); (err == nil) != want || (err != nil && (!ours || o.kind != outcomeAbsent)) {
			t.Errorf("%q: %v", to, err)
		}
	}
}
