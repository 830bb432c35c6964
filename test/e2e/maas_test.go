// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/testkit/postgres"
)

const (
	maasNamespace, maasTenant = "e2e-maas", "models-as-a-service"
	maasGateway, maasPort     = "maas-default-gateway", "8088"
	maasGateways              = "openshift-ingress"
	maasDatabase              = "maas"

	// What clients call the models: one of the cluster, and two of providers, of which the first speaks another API than OpenAI's.
	ownModel, translatedModel, plainModel = "publishers/" + maasNamespace + "/models/chat", "claude", "gpt"
)

// service is models as a service: a tenant with its gateway, its models, and a person who may use them.
type service struct {
	cluster
	python, at string
	database   *postgres.Server
	token      string // of Ada, by the cluster
}

// modelsAsAService goes the whole way through the real Envoy Gateway, with what Modelplane has of its own to check requests.
func (c cluster) modelsAsAService() {
	s := &service{cluster: c, python: c.modelsPython()}
	s.tenantIsActive()
	s.modelsAreReady()
	step := func(name string, does func(*service)) part {
		return part{name, func(c cluster) {
			mine := *s
			mine.cluster = c
			does(&mine)
		}}
	}
	c.parts(c.T, []part{
		step("people's clients are answered", (*service).clientsAreAnswered),
		step("nobody comes in who may not", (*service).othersAreRefused),
		step("internal routes are not to be had", (*service).internalIsClosed),
		step("a quota is used up and comes back", (*service).quotaComesBack),
		step("a revoked key is refused within a second", (*service).revokedIsRefused),
		step("nobody comes in while servers are killed", (*service).killedLetNobodyIn),
		step("a tenant goes", (*service).tenantGoes),
	})
}

// modelsPython is made by `make e2e` from packages of Python, if they can be had.
func (c cluster) modelsPython() string {
	c.Helper()
	python, err := os.ReadFile(filepath.Join(root, c.images, "models-python"))
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
		c.Skip("there are no clients of language models: `make e2e` says why")
	}
	if err != nil {
		c.Fatal(err)
	}
	return strings.TrimSpace(string(python))
}

// tenantIsActive has a database on this machine, and a gateway besides that of all services.
func (s *service) tenantIsActive() {
	s.Helper()
	s.database = postgres.StartAt(s, s.nodeAddress())
	s.database.Database(s, maasDatabase)
	s.mustKubectl("apply", "-f", s.manifest("maas-tenant.yaml", "${DATABASE}", s.database.URI(maasDatabase)))
	s.becomes("aitenant/"+maasTenant, "ai-tenants", "Active")
	s.at = "http://" + s.mustKubectl("get", "services", "-n", envoyNamespace, "-l", "gateway.envoyproxy.io/owning-gateway-name="+maasGateway,
		"-o", "jsonpath={.items[0].spec.clusterIP}") + ":" + maasPort
}

// becomes waits for a phase.
func (s *service) becomes(what, namespace, phase string) {
	s.Helper()
	s.eventually(what+" to be "+phase, func() error {
		told, err := s.kubectl("get", what, "-n", namespace, "-o", "jsonpath={.status.phase} {.status.conditions}")
		if err == nil && !strings.HasPrefix(told, phase+" ") {
			err = errors.New(told)
		}
		return err
	})
}

func (s *service) modelsAreReady() {
	s.Helper()
	s.mustKubectl("apply", "-f", s.manifest("maas.yaml", "${ECHO}", s.image("modelplane-echo")))
	s.becomes("maasmodelref/chat", maasNamespace, "Ready")
	s.becomes("maasmodelref/claude", maasTenant, "Ready")
	s.becomes("maasmodelref/gpt", maasTenant, "Ready")
	for _, subscription := range []string{"large", "small"} {
		s.becomes("maassubscription/"+subscription, maasTenant, "Active")
		if by := s.mustKubectl("get", "maassubscription", subscription, "-n", maasTenant, "-o", `jsonpath={.status.conditions[?(@.type=="EnforcedBy")].reason}`); by != "BuiltIn" {
			s.Errorf("the subscription %s is enforced by %q", subscription, by)
		}
	}
	s.token = s.tokenOf("ada")
}

func (c cluster) tokenOf(account string) string {
	c.Helper()
	return c.mustKubectl("create", "token", account, "-n", maasNamespace, "--duration=1h")
}

// answered is what came back.
type answered struct {
	code   int
	header http.Header
	body   string
}

func (a answered) String() string { return fmt.Sprintf("%d %.300s", a.code, a.body) }

// send asks the gateway; headers come in pairs.
func (s *service) send(client *http.Client, method, path, body string, headers ...string) (answered, error) {
	request, err := http.NewRequestWithContext(context.WithoutCancel(s.Context()), method, s.at+path, strings.NewReader(body))
	if err != nil {
		return answered{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header[headers[i]] = []string{headers[i+1]} // as it is written
	}
	response, err := client.Do(request)
	if err != nil {
		return answered{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return answered{response.StatusCode, response.Header, string(bytes.TrimSpace(text))}, err
}

func (s *service) must(method, path, body string, code int, headers ...string) answered {
	s.Helper()
	a, err := s.send(fresh, method, path, body, headers...)
	if err != nil || a.code != code {
		s.Fatalf("%s %s: %v %s; want %d", method, path, err, a, code)
	}
	return a
}

func bearer(key string) []string { return []string{"Authorization", "Bearer " + key} }

// question for a model, whose answer is three words long and, with what was asked, four tokens.
func question(model string) string {
	return `{"model":"` + model + `","max_tokens":10,"messages":[{"role":"user","content":"hello"}]}`
}

const chats = "/v1/chat/completions"

// mint makes a key with a token of the cluster.
func (s *service) mint(subscription string) (key, id string) {
	s.Helper()
	a := s.must(http.MethodPost, "/v1/api-keys", `{"name":"e2e","subscription":"`+subscription+`","expiresIn":"1h"}`, http.StatusCreated, bearer(s.token)...)
	var made struct{ Key, ID string }
	if err := json.Unmarshal([]byte(a.body), &made); err != nil || made.Key == "" || made.ID == "" {
		s.Fatalf("no key was made: %v", err)
	}
	return made.Key, made.ID
}

// clientsAreAnswered uses the clients that people have, with a key that a token has made.
func (s *service) clientsAreAnswered() {
	s.eventually("a first answer of maas-api", func() error {
		a, err := s.send(fresh, http.MethodGet, "/v1/models", "", bearer(s.token)...)
		if err == nil && (a.code != http.StatusOK || strings.Count(a.body, `"object":"model"`) != 3) {
			err = errors.New(a.String())
		}
		return err
	})
	key, _ := s.mint("large")
	for _, model := range []string{ownModel, translatedModel, plainModel} {
		s.eventually("a first answer of "+model, func() error {
			a, err := s.send(fresh, http.MethodPost, chats, question(model), bearer(key)...)
			if err == nil && (a.code != http.StatusOK || !strings.Contains(a.body, "heard hello")) {
				err = errors.New(a.String())
			}
			return err
		})
	}
	out := s.cluster.must(s.python, "test/e2e/testdata/maas.py", s.at, key, ownModel, translatedModel, plainModel)
	if !strings.HasSuffix(strings.TrimSpace(out), "done") {
		s.Errorf("the clients did not come to their end:\n%s", out)
	}
	// A key in the other header, a model in the path, and a token of the cluster in place of a key.
	s.must(http.MethodPost, "/v1/messages", question(translatedModel), http.StatusOK, "X-Api-Key", key)
	s.must(http.MethodPost, "/"+maasNamespace+"/chat"+chats, question("chat"), http.StatusOK, bearer(key)...)
	s.must(http.MethodPost, chats, question(ownModel), http.StatusOK, append(bearer(s.token), "X-MaaS-Subscription", "large")...)
}

// othersAreRefused tries what nobody may.
func (s *service) othersAreRefused() {
	key, _ := s.mint("large")
	small, _ := s.mint("small")
	foreign, id := s.mint("large")
	s.must(http.MethodPost, chats, question(ownModel), http.StatusOK, bearer(foreign)...)
	// As the other tenant's maas-api would have stored it, which has the same database.
	s.database.Query(s, maasDatabase, `UPDATE api_keys SET tenant = 'red' WHERE id = '`+id+`'`)
	s.eventually("the key of another tenant to be refused", func() error {
		a, err := s.send(fresh, http.MethodPost, chats, question(ownModel), bearer(foreign)...)
		if err == nil && a.code != http.StatusForbidden {
			err = errors.New(a.String())
		}
		return err
	})
	stranger := s.tokenOf("bob")
	for _, t := range []struct {
		name, path, body string
		headers          []string
		code             int
	}{
		{"no key", chats, question(ownModel), nil, http.StatusUnauthorized},
		{"no key, at a provider's model", chats, question(translatedModel), nil, http.StatusUnauthorized},
		{"no key, and a model in the path", "/" + maasNamespace + "/chat" + chats, question("chat"), nil, http.StatusUnauthorized},
		{"no key, and a header by which routes are chosen", chats, question("x"), []string{"X-Gateway-Model-Name", ownModel}, http.StatusUnauthorized},
		{"a key that somebody has made up", chats, question(ownModel), bearer("sk-oai-0123456789abcdef_0123456789abcdef0123456789abcdef0123456789a"), http.StatusForbidden},
		{"a token that nobody vouches for", chats, question(ownModel), bearer("a.b.c"), http.StatusUnauthorized},
		{"a token of somebody without a subscription", chats, question(ownModel), bearer(stranger), http.StatusForbidden},
		{"the key of another tenant", chats, question(ownModel), bearer(foreign), http.StatusForbidden},
		{"a model that the key's subscription does not have", chats, question(translatedModel), bearer(small), http.StatusForbidden},
		{"a model that there is not", chats, question("nothing"), bearer(key), http.StatusForbidden},
		{"a forged name", chats, question(ownModel), append(bearer(key), "X-MaaS-Username", "root"), http.StatusForbidden},
		{"a forged group", chats, question(ownModel), append(bearer(key), "x-maas-group", `["system:masters"]`), http.StatusForbidden},
		{"a forged name without a key", chats, question(ownModel), []string{"x-maas-username", "root", "x-maas-group", `["a"]`}, http.StatusForbidden},
		{"a forged header of no meaning", chats, question(ownModel), append(bearer(key), "x-maas-anything", "1"), http.StatusForbidden},
	} {
		if a, err := s.send(fresh, http.MethodPost, t.path, t.body, t.headers...); err != nil || a.code != t.code {
			s.Errorf("%s: %v %s; want %d", t.name, err, a, t.code)
		}
	}
	// maas-api believes nobody who says who he is.
	s.must(http.MethodPost, "/v1/api-keys", `{"name":"forged"}`, http.StatusUnauthorized, "X-MaaS-Username", "root", "X-MaaS-Group", `["system:masters"]`)
	s.must(http.MethodPost, "/v1/api-keys", `{"name":"by a key"}`, http.StatusForbidden, bearer(key)...)
	s.must(http.MethodPost, "/v1/api-keys", `{"name":"of a stranger"}`, http.StatusBadRequest, bearer(stranger)...)
}

// internalIsClosed looks for the routes that only the gateway may ask, from outside and with a key that is good.
func (s *service) internalIsClosed() {
	key, _ := s.mint("large")
	body := `{"key":"` + key + `","username":"root","groups":["system:masters"]}`
	for _, path := range []string{"/internal/v1/api-keys/validate", "/internal/v1/subscriptions/select", "/internal/v1/api-keys/cleanup"} {
		for _, before := range []string{"", "/maas-api", "/v1/models/..", "/v1/api-keys/..", "/maas-api/v1/models/..", "/v1/models/%2e%2e", "/v1/models/..%2f..", "/v1/api-keys/", "//", "/maas-api/v1/api-keys/%2e%2e/%2e%2e"} {
			for _, headers := range [][]string{nil, bearer(key), bearer(s.token)} {
				a, err := s.send(fresh, http.MethodPost, before+path, body, headers...)
				if err != nil || a.code < 400 || a.code >= 500 || strings.Contains(a.body, `"valid"`) || strings.Contains(a.body, "accessAllowed") {
					s.Errorf("POST %s%s with %d headers: %v %s", before, path, len(headers), err, a)
				}
			}
		}
	}
	s.must(http.MethodPost, chats, question(ownModel), http.StatusOK, bearer(key)...) // cleanup has not been asked for either
}

// quotaComesBack asks until there are no tokens left, is told how long that lasts, and asks again.
func (s *service) quotaComesBack() {
	const window, limit, each = 10 * time.Second, 12, 4
	key, _ := s.mint("small")
	ask := func() (a answered) {
		s.Helper()
		s.eventually("an answer that tells", func() (err error) {
			if a, err = s.send(fresh, http.MethodPost, chats, question(ownModel), bearer(key)...); err == nil && strings.Contains(a.body, "held by requests") {
				err = errors.New("the one before is not counted yet")
			}
			return err
		})
		return a
	}
	good, began := 0, time.Now()
	a := ask()
	for ; a.code == http.StatusOK && good < 10*limit; a = ask() {
		good++
	}
	wait, err := strconv.Atoi(a.header.Get("Retry-After"))
	if a.code != http.StatusTooManyRequests || err != nil || wait < 1 || wait > int(window.Seconds()) || !strings.Contains(a.body, "rate_limit") {
		s.Fatalf("after %d answers: %s, retry-after %q", good, a, a.header.Get("Retry-After"))
	}
	refused := time.Now()
	if refused.Sub(began) < window && good != limit/each {
		s.Errorf("%d answers of %d tokens each for %d tokens", good, each, limit)
	}
	for a.code == http.StatusTooManyRequests && time.Since(refused) < 3*window {
		pace(s.Context(), 100*time.Millisecond)
		a = ask()
	}
	took := time.Since(refused)
	s.Logf("%d answers, then refused with retry-after %d, and answered again after %s", good, wait, took.Round(time.Millisecond))
	if a.code != http.StatusOK || took < time.Duration(wait-2)*time.Second {
		s.Errorf("told to wait %d s: after %s %s", wait, took, a)
	}
	// Who pays from elsewhere does not wait.
	other, _ := s.mint("large")
	s.must(http.MethodPost, chats, question(ownModel), http.StatusOK, bearer(other)...)
}

// revokedIsRefused asks on and on with a key, and takes the key away.
func (s *service) revokedIsRefused() {
	key, id := s.mint("large")
	type asked struct {
		at   time.Time
		code int
	}
	var mu sync.Mutex
	var seen []asked
	ctx, stop := context.WithCancel(s.Context())
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				a, err := s.send(fresh, http.MethodPost, chats, question(ownModel), bearer(key)...)
				mu.Lock()
				if err == nil {
					seen = append(seen, asked{began, a.code})
				}
				mu.Unlock()
				pace(ctx, 20*time.Millisecond)
			}
		})
	}
	count := func(good func(asked) bool) int {
		mu.Lock()
		defer mu.Unlock()
		return len(slices.DeleteFunc(slices.Clone(seen), func(a asked) bool { return !good(a) }))
	}
	s.eventually("answers with the key", func() error {
		if n := count(func(a asked) bool { return a.code == http.StatusOK }); n < 20 {
			return fmt.Errorf("%d so far", n)
		}
		return nil
	})
	s.must(http.MethodDelete, "/v1/api-keys/"+id, "", http.StatusOK, bearer(s.token)...)
	revoked := time.Now()
	s.eventually("refusals", func() error {
		if n := count(func(a asked) bool { return a.at.After(revoked.Add(time.Second)) }); n < 20 {
			return fmt.Errorf("%d so far", n)
		}
		return nil
	})
	stop()
	asking.Wait()
	late := count(func(a asked) bool { return a.at.After(revoked.Add(time.Second)) && a.code != http.StatusForbidden })
	last := time.Duration(0)
	for _, a := range seen {
		if a.code == http.StatusOK {
			last = max(last, a.at.Sub(revoked))
		}
	}
	s.Logf("the last request that was answered began %s after the key was revoked", last.Round(time.Millisecond))
	if late > 0 {
		s.Errorf("%d requests that began more than a second after the key was revoked were not refused with 403", late)
	}
}

// tally is how often each status came back; 0 stands for no answer.
type tally struct {
	mu    sync.Mutex
	codes map[int]int
	said  string // of an answer that should not be
}

func (t *tally) note(a answered, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		a.code = 0
	}
	if t.codes == nil {
		t.codes = map[int]int{}
	}
	if t.codes[a.code]++; a.code == http.StatusOK {
		t.said = time.Now().Format("15:04:05.000 ") + a.String()
	}
}

func (t *tally) soFar() map[int]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.codes)
}

// killedLetNobodyIn kills the processor and maas-api under load. Some who may come in are refused for that time; of those who may
// not, nobody comes in.
func (s *service) killedLetNobodyIn() {
	key, _ := s.mint("large")
	gone, id := s.mint("large")
	s.must(http.MethodDelete, "/v1/api-keys/"+id, "", http.StatusOK, bearer(s.token)...)
	s.eventually("the refusal of a revoked key", func() error {
		a, err := s.send(fresh, http.MethodPost, chats, question(ownModel), bearer(gone)...)
		if err == nil && a.code != http.StatusForbidden {
			err = fmt.Errorf("it says %s", a)
		}
		return err
	})
	var may, mayNot tally
	ctx, stop := context.WithCancel(s.Context())
	var asking sync.WaitGroup
	ask := func(t *tally, path, body string, headers ...string) {
		kept := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{}}
		for i, client := range []*http.Client{fresh, kept} {
			asking.Go(func() {
				for n := i; ctx.Err() == nil; n++ {
					t.note(s.send(client, http.MethodPost, path, body, headers...))
					pace(ctx, 50*time.Millisecond)
				}
			})
		}
	}
	s.Cleanup(func() { stop(); asking.Wait() })
	ask(&may, chats, question(ownModel), bearer(key)...)
	ask(&may, chats, question(translatedModel), bearer(key)...)
	ask(&mayNot, chats, question(ownModel))
	ask(&mayNot, chats, question(translatedModel))
	ask(&mayNot, "/"+maasNamespace+"/chat"+chats, question("chat"))
	ask(&mayNot, chats, question(ownModel), bearer(gone)...)
	ask(&mayNot, chats, question("x"), "X-Gateway-Model-Name", ownModel, "X-Ipp-Selected-Provider", "anthropic", "X-MaaS-Username", "root")
	ask(&mayNot, "/v1/api-keys", `{"name":"nobody's"}`, "X-MaaS-Username", "root", "X-MaaS-Group", `["system:masters"]`)
	more := func(what string, n int) {
		s.Helper()
		start, others := may.soFar()[http.StatusOK], sum(mayNot.soFar())
		s.eventually("answers "+what, func() error {
			if good, refused := may.soFar()[http.StatusOK]-start, sum(mayNot.soFar())-others; good < n || refused < n {
				return fmt.Errorf("%d answers and %d refusals: %v and %v", good, refused, may.soFar(), mayNot.soFar())
			}
			return nil
		})
	}
	more("at first", 20)
	for _, victim := range []struct{ namespace, app string }{
		{maasGateways, "payload-processing"}, {managerNamespace, "maas-api"}, {maasGateways, "payload-processing"},
	} {
		before := s.podsOf(victim.namespace, victim.app)
		s.Logf("%s %s is killed", time.Now().Format("15:04:05.000"), victim.app)
		s.mustKubectl("delete", "pods", "-n", victim.namespace, "-l", "app.kubernetes.io/name="+victim.app, "--force", "--grace-period=0", "--wait=false")
		s.eventually("another pod of "+victim.app, func() error {
			now := s.podsOf(victim.namespace, victim.app)
			if now == "" || now == before {
				return fmt.Errorf("there is %q", now)
			}
			return nil
		})
		s.mustKubectl("rollout", "status", "deployment/"+victim.app, "-n", victim.namespace, "--timeout=5m")
		more("after "+victim.app+" was killed", 20)
	}
	stop()
	asking.Wait()
	s.Logf("with a key: %v; without one: %v", may.codes, mayNot.codes)
	if n := mayNot.codes[http.StatusOK] + mayNot.codes[http.StatusCreated]; n > 0 {
		s.Errorf("%d of %d requests were let in without a key that is good: %s", n, sum(mayNot.codes), mayNot.said)
	}
}

// pace lets clients ask so often and no more.
func pace(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func sum(codes map[int]int) (n int) {
	for _, times := range codes {
		n += times
	}
	return n
}

func (c cluster) podsOf(namespace, app string) string {
	c.Helper()
	return c.mustKubectl("get", "pods", "-n", namespace, "-l", "app.kubernetes.io/name="+app, "-o", "jsonpath={.items[*].metadata.uid}")
}

// tenantGoes removes everything again, the tenant before what it stands on.
func (s *service) tenantGoes() {
	s.mustKubectl("delete", "namespace", maasNamespace, "--timeout=5m") // with the route that leads to a model
	s.mustKubectl("delete", "aitenant", maasTenant, "-n", "ai-tenants", "--timeout=5m")
	s.mustKubectl("delete", "config.maas.opendatahub.io", "default", "--timeout=5m")
	s.eventually("the end of the servers", func() error {
		for _, where := range []struct{ namespace, app string }{{maasGateways, "payload-processing"}, {managerNamespace, "maas-api"}} {
			if left := s.podsOf(where.namespace, where.app); left != "" {
				return fmt.Errorf("there are pods of %s", where.app)
			}
		}
		return nil
	})
	s.mustKubectl("delete", "namespace", maasGateways, maasTenant, "ai-tenants", "--timeout=5m")
	s.mustKubectl("delete", "secret", "maas-db-config", "-n", managerNamespace)
}
