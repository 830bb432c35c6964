// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What replicas ask each other.
const (
	pathFigures = "/figures"
	pathGate    = "/gate"
	// headerSigned proves that who asks has the key of the replicas: the time, a dot, and a digest of time, path and body.
	headerSigned = "Modelplane-Signed"
	// signedFor is how old a question may be, and how much clocks may differ.
	signedFor = 30 * time.Second
	mostAsked = 64 << 10
	mostTold  = 16 << 20
)

// What is done with a gate.
const (
	gateShut = "shut" // new requests wait, if none is inside
	gateOpen = "open" // they go on to the pods
	gateGone = "gone" // the pods are about to go
)

// Report is what one replica has counted.
type Report struct {
	// Instance is another one after every start, when counting begins anew.
	Instance string             `json:"instance"`
	Services map[string]Figures `json:"services"`
}

// gateQuestion asks to shut or open the way to a service.
type gateQuestion struct {
	Service string `json:"service"`
	Do      string `json:"do"`
}

type gateAnswer struct {
	Done bool `json:"done"`
}

// replica is this process, as its peers see it.
type replica struct {
	instance string
	table    *table
	key      func() []byte
	now      func() time.Time
}

func newReplica(t *table, key func() []byte) *replica {
	return &replica{instance: rand.Text(), table: t, key: key, now: time.Now}
}

func (r *replica) report() Report {
	out := Report{Instance: r.instance, Services: map[string]Figures{}}
	for _, t := range r.table.all() {
		out.Services[t.key()] = t.figures()
	}
	return out
}

// gate does what the leader asks. A service that is not known here has no request here.
func (r *replica) gate(q gateQuestion) gateAnswer {
	t := r.table.get(q.Service)
	switch {
	case t == nil:
		return gateAnswer{Done: true}
	case q.Do == gateShut:
		return gateAnswer{Done: t.shut()}
	}
	t.open(q.Do == gateGone)
	return gateAnswer{Done: true}
}

// handler answers peers, and nobody else.
func (r *replica) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathFigures, r.asked(func([]byte) (any, error) { return r.report(), nil }))
	mux.HandleFunc("POST "+pathGate, r.asked(func(body []byte) (any, error) {
		var q gateQuestion
		if err := json.Unmarshal(body, &q); err != nil || !slices.Contains([]string{gateShut, gateOpen, gateGone}, q.Do) {
			return nil, errors.New("what is asked for cannot be understood")
		}
		return r.gate(q), nil
	}))
	return mux
}

func (r *replica) asked(do func(body []byte) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, mostAsked))
		if err != nil {
			answer(w, req, http.StatusBadRequest, "The question cannot be read.")
			return
		}
		if !verified(r.key(), req.Header.Get(headerSigned), req.URL.Path, body, r.now()) {
			answer(w, req, http.StatusUnauthorized, "Only replicas of the activator may ask.")
			return
		}
		told, err := do(body)
		if err != nil {
			answer(w, req, http.StatusBadRequest, err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(told)
	}
}

func signed(key []byte, path string, body []byte, now time.Time) string {
	at := strconv.FormatInt(now.Unix(), 10)
	return at + "." + digestOf(key, at, path, body)
}

func digestOf(key []byte, at, path string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s %s %d ", at, path, len(body))
	_, _ = mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

func verified(key []byte, said, path string, body []byte, now time.Time) bool {
	at, digest, _ := strings.Cut(said, ".")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || len(key) == 0 || now.Sub(time.Unix(seconds, 0)).Abs() > signedFor {
		return false
	}
	return hmac.Equal([]byte(digest), []byte(digestOf(key, at, path, body)))
}

// peer is one replica that can be asked.
type peer interface {
	id() string
	figures(context.Context) (Report, error)
	gate(context.Context, gateQuestion) (bool, error)
}

// self is this replica as a peer.
type self struct{ *replica }

func (self) id() string                                { return "self" }
func (s self) figures(context.Context) (Report, error) { return s.report(), nil }
func (s self) gate(_ context.Context, q gateQuestion) (bool, error) {
	return s.replica.gate(q).Done, nil
}

// remote is another replica.
type remote struct {
	address string
	key     func() []byte
	client  *http.Client
}

func (r remote) id() string { return r.address }

func (r remote) figures(ctx context.Context) (Report, error) {
	var out Report
	err := r.ask(ctx, pathFigures, struct{}{}, &out)
	return out, err
}

func (r remote) gate(ctx context.Context, q gateQuestion) (bool, error) {
	var out gateAnswer
	err := r.ask(ctx, pathGate, q, &out)
	return out.Done, err
}

func (r remote) ask(ctx context.Context, path string, question, into any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set(headerSigned, signed(r.key(), path, body, time.Now()))
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", r.address, resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, mostTold)).Decode(into)
}

// peers are the replicas that the EndpointSlices of the activator's own Service list, this one among them.
type peers struct {
	own    string // the address of this replica
	self   self
	key    func() []byte
	client *http.Client

	mu sync.RWMutex
	// listed are addresses with the ports of peers, also of replicas that are about to end: they may have requests still.
	// open are addresses with the ports for requests, of those that take new ones.
	listed, open []string
}

func (p *peers) set(listed, open []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listed, p.open = listed, open
}

// all are the replicas to ask.
func (p *peers) all() []peer {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := []peer{p.self}
	for _, address := range p.listed {
		if !strings.HasPrefix(address, p.own+":") {
			out = append(out, remote{address: address, key: p.key, client: p.client})
		}
	}
	return out
}

// owner is the replica that alone sends requests to a service whose pods take only so many at a time: the limit holds only
// where all are counted. Empty: this one. All replicas find the same, except for the moment in which one comes or goes.
func (p *peers) owner(t *target) string {
	if t.scaling().Limit == 0 {
		return ""
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	best, most := "", uint64(0)
	for _, address := range p.open {
		h := fnv.New64a()
		_, _ = io.WriteString(h, address+" "+t.key())
		if sum := mix(h.Sum64()); best == "" || sum > most {
			best, most = address, sum
		}
	}
	if strings.HasPrefix(best, p.own+":") {
		return ""
	}
	return best
}

// mix spreads sums of texts that differ in few letters.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}
