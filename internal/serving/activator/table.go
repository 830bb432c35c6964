// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"cmp"
	"crypto/hmac"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/serving/activation"
)

// table is every target by what requests call it.
type table struct {
	bounds *bounds
	wake   func(*target)
	// key is what replicas know each other by.
	key func() []byte

	mu      sync.RWMutex
	targets map[string]*target
	// parted are those that are no longer ours, for as long as requests may still come here.
	parted map[string]*target
	// changed is closed when a component comes.
	changed chan struct{}
	// own are service.namespace and service.namespace.svc, which nobody else can have; names the hosts from outside and the
	// address of the Service, as services say them; short the bare names of Services.
	own          map[string]*target
	names, short map[string][]*target
}

func newTable(b *bounds, wake func(*target), key func() []byte) *table {
	return &table{bounds: b, wake: wake, key: key, changed: make(chan struct{}), targets: map[string]*target{}, parted: map[string]*target{},
		own: map[string]*target{}, names: map[string][]*target{}, short: map[string][]*target{}}
}

// put takes a component as its Service describes it.
func (b *table) put(namespace, name string, created time.Time, s activation.Settings, ports []port) *target {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := namespace + "/" + name
	t := cmp.Or(b.targets[key], b.parted[key])
	if t != nil {
		b.forget(t)
	} else {
		t = &target{namespace: namespace, name: name, bounds: b.bounds, wake: b.wake}
	}
	b.targets[key] = t
	delete(b.parted, key)
	t.created = created
	t.set(s, ports)
	for _, n := range t.ownNames() {
		b.own[n] = t
	}
	for _, n := range hostsOf(t) {
		b.names[n] = withTarget(b.names[n], t)
	}
	b.short[name] = withTarget(b.short[name], t)
	close(b.changed)
	b.changed = make(chan struct{})
	return t
}

// partingLasts is how long requests for a component are handed on that is no longer ours. Clients are asked to connect anew,
// which leads them to the pods.
const partingLasts = time.Minute

// remove parts with a component: it is not scaled any more, and forgotten after a while. Then gone is called.
func (b *table) remove(namespace, name string, gone func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := namespace + "/" + name
	t := b.targets[key]
	if t == nil {
		return
	}
	delete(b.targets, key)
	b.parted[key] = t
	t.part()
	time.AfterFunc(partingLasts, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.parted[key] == t {
			b.forget(t)
			delete(b.parted, key)
			gone()
		}
	})
}

func (b *table) forget(t *target) {
	for _, n := range t.ownNames() {
		delete(b.own, n)
	}
	for _, n := range hostsOf(t) {
		b.names[n] = withoutTarget(b.names[n], t)
		if len(b.names[n]) == 0 {
			delete(b.names, n)
		}
	}
	if b.short[t.name] = withoutTarget(b.short[t.name], t); len(b.short[t.name]) == 0 {
		delete(b.short, t.name)
	}
}

func (t *target) ownNames() []string {
	own := t.name + "." + t.namespace
	return []string{own, own + ".svc"}
}

func hostsOf(t *target) []string {
	var out []string
	for _, host := range t.scaling().Hosts {
		if host = strings.ToLower(host); !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	return out
}

// withTarget keeps those with the same name in the order in which they were made: nobody takes a host from who has it.
func withTarget(list []*target, t *target) []*target {
	list = append(slices.Clone(list), t)
	slices.SortFunc(list, func(a, b *target) int {
		return cmp.Or(a.created.Compare(b.created), strings.Compare(a.key(), b.key()))
	})
	return list
}

func withoutTarget(list []*target, t *target) []*target {
	return slices.DeleteFunc(slices.Clone(list), func(other *target) bool { return other == t })
}

// get is the target of a component, nil if it is not known.
func (b *table) get(key string) *target {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.targets[key]
}

// known is the target of a component, also of one that has just left.
func (b *table) known(key string) *target {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return cmp.Or(b.targets[key], b.parted[key])
}

// all are the targets, in no order.
func (b *table) all() []*target {
	b.mu.RLock()
	defer b.mu.RUnlock()
	out := make([]*target, 0, len(b.targets))
	for _, t := range b.targets {
		out = append(out, t)
	}
	return out
}

// find is whom a request is for, and at which of its ports. Several namespaces may have a Service of a bare name; then
// nobody can tell.
func (b *table) find(r *http.Request) (t *target, p port, ambiguous bool) {
	host, number := splitHost(r.Host)
	if to, at, said := b.told(r); said {
		if to == nil {
			return nil, port{}, false
		}
		p = to.choose(r, at)
		return to, p, false
	}
	named, ambiguous := b.called(host)
	if named == nil {
		return nil, port{}, ambiguous
	}
	if host != named.name && !strings.HasPrefix(host, named.name+"."+named.namespace) {
		number = 0 // that of a gateway
	}
	p = named.choose(r, number)
	return named, p, false
}

// told is whom the header names, of a replica that hands the request over or of somebody who has the key of the component.
// The header of anybody else says nothing, so that the client of one service cannot ask another one by it. Whoever brings a key
// for a component that we do not know, or know with another key, may be ahead of us; without a component it is nobody.
func (b *table) told(r *http.Request) (t *target, number int32, said bool) {
	value := r.Header.Get(activation.Header)
	if b.handedOver(r) {
		host, number := splitHost(value)
		b.mu.RLock()
		defer b.mu.RUnlock()
		return b.own[host], number, true
	}
	name, key, keyed := strings.Cut(value, "/")
	if !keyed || key == "" {
		return nil, 0, false
	}
	b.mu.RLock()
	t = b.own[name]
	b.mu.RUnlock()
	if t == nil {
		return nil, 0, true
	}
	if !hmac.Equal([]byte(t.scaling().Key), []byte(key)) {
		return nil, 0, false
	}
	return t, 0, true
}

// mostStrangers is how many requests for nobody may wait for somebody of that name.
const mostStrangers = 100

// expect is find for a request whose component may be on its way to us: the manager leads requests here when it has seen the
// component's Service, and need not be the last to see it.
func (b *table) expect(r *http.Request, patience time.Duration) (t *target, p port, ambiguous bool) {
	if t, p, ambiguous = b.find(r); t != nil || ambiguous {
		return t, p, ambiguous
	}
	defer b.bounds.strangers.Add(-1)
	if b.bounds.strangers.Add(1) > mostStrangers {
		return nil, port{}, false
	}
	ended := time.NewTimer(patience)
	defer ended.Stop()
	for {
		b.mu.RLock()
		changed := b.changed
		b.mu.RUnlock()
		if t, p, ambiguous = b.find(r); t != nil || ambiguous {
			return t, p, ambiguous
		}
		select {
		case <-changed:
		case <-ended.C:
			return nil, port{}, false
		case <-r.Context().Done():
			return nil, port{}, false
		}
	}
}

// called is whom a host means.
func (b *table) called(host string) (t *target, ambiguous bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if own := b.own[host]; own != nil {
		return own, false
	}
	if at := strings.Index(host, ".svc."); at > 0 {
		if own := b.own[host[:at+len(".svc")]]; own != nil {
			return own, false
		}
	}
	if named := b.names[host]; len(named) > 0 {
		return named[0], false
	}
	switch named := b.short[host]; len(named) {
	case 0:
		return nil, false
	case 1:
		return named[0], false
	}
	return nil, true
}

// splitHost is a host in its usual form, and the port that stands behind it or 0.
func splitHost(host string) (string, int32) {
	number := 0
	if name, digits, err := net.SplitHostPort(host); err == nil {
		host = name
		number, _ = strconv.Atoi(digits)
	}
	return strings.Trim(strings.TrimSuffix(strings.ToLower(host), "."), "[]"), int32(max(0, min(number, 1<<16)))
}

// choose is the port that was asked for by its number, or else the one that speaks what the request speaks.
func (t *target) choose(r *http.Request, number int32) port {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.ports {
		if number != 0 && p.number == number {
			return t.spoken(p, r)
		}
	}
	want := isGRPC(r)
	for _, p := range t.ports {
		if p.http2 == want {
			return t.spoken(p, r)
		}
	}
	if len(t.ports) > 0 {
		return t.spoken(t.ports[0], r)
	}
	return port{}
}

// spoken speaks HTTP/2 to a port also where only the request tells that it must.
func (t *target) spoken(p port, r *http.Request) port {
	p.http2 = p.http2 && r.ProtoMajor >= 2 || isGRPC(r)
	return p
}

func isGRPC(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}
