// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelplane/modelplane/bench/load"
	"github.com/modelplane/modelplane/internal/testkit"
)

// measure goes through the phases of the README.
func (o options) measure(t testing.TB, b *bed) *report {
	t.Helper()
	r := &report{Keys: o.keys, Clients: o.clients}
	for _, s := range b.servers {
		now, _ := b.memory(s.Program)
		r.Selects = append(r.Selects, selects{Subscriptions: s.subscriptions, IdleMiB: now})
	}
	full := b.servers[len(b.servers)-1] // the one with most to remember
	o.measureSelect(b, r)
	o.measureKeys(b, full, r)
	o.measureGateway(b, full, r)
	for i, s := range b.servers {
		_, r.Selects[i].PeakMiB = b.memory(s.Program)
		r.Selects[i].Complaints = complaints(s.Output())
	}
	return r
}

func (b *bed) memory(p *testkit.Program) (now, most float64) {
	b.Helper()
	now, most, err := p.Memory()
	if err != nil {
		b.Fatalf("%v\n%s", err, p.Output())
	}
	return now, most
}

// complaints are what a program says of itself that nobody should have to read.
func complaints(log string) (out []string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "Times of use") || strings.Contains(line, `"level":"ERROR"`) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// scattered are the numbers of keys that were not asked for before, each once, in no order of the database.
func (o options) scattered(turn int) int {
	const prime = 611_953
	return o.hot + turn*prime%(o.keys-o.hot)
}

// measureKeys asks for keys that are remembered, that are not yet, and that do not exist.
func (o options) measureKeys(b *bed, s *server, r *report) {
	b.Helper()
	client := b.client(o.clients)
	defer client.CloseIdleConnections()
	a := newAsker(client, s.internal, b.token)
	rush := load.Load{Clients: o.clients, Duration: o.each}
	phase := func(l load.Load, ask load.Ask) (load.Figures, float64) {
		before := b.metric(s.metrics, cacheMisses)
		f := l.Run(b.Context(), ask)
		return f, (b.metric(s.metrics, cacheMisses) - before) / float64(max(1, f.Requests))
	}
	of := func(n int) func(context.Context) error {
		return func(ctx context.Context) error { return a.validate(ctx, keyOf(n), idOf(n), true) }
	}
	v := &r.Validate
	o.say("asking for %d keys again and again", o.hot)
	if warm := (load.Load{Clients: o.clients, Most: o.hot}).Run(b.Context(), func(ctx context.Context, turn int) error { return of(turn)(ctx) }); warm.Failures() > 0 {
		b.Fatalf("keys that are stored are not valid: %s\n%s", warm.First, s.Output())
	}
	v.Hit, v.HitAsked = phase(rush, func(ctx context.Context, _ int) error { return of(rand.IntN(o.hot))(ctx) }) //nolint:gosec // any will do
	o.say("asking for %d others once", o.cold)
	v.Cold, v.ColdAsked = phase(load.Load{Clients: o.clients, Most: o.cold}, func(ctx context.Context, turn int) error { return of(o.scattered(turn))(ctx) })
	v.Remembered = b.metric(s.metrics, cacheKeys)
	o.say("asking for keys that nobody has")
	wrong := unknown()
	v.Miss, v.MissAsked = phase(rush, func(ctx context.Context, _ int) error { return a.validate(ctx, wrong, "", false) })
	v.Unknown, v.UnknownAsked = phase(rush, func(ctx context.Context, _ int) error { return a.validate(ctx, unknown(), "", false) })
	v.Forgotten = v.Remembered - b.metric(s.metrics, cacheKeys)
	v.MiB, v.PeakMiB = b.memory(s.Program)
	o.say("waiting until the database has when they were used")
	testkit.Eventually(b, time.Minute, "the uses of keys to be noted", func() (err error) {
		text := strings.TrimSpace(b.database.Query(b, tenant, "SELECT count(*) FROM api_keys WHERE last_used_at IS NOT NULL"))
		if v.Noted, err = strconv.Atoi(text); err == nil && v.Noted < o.hot+o.cold {
			err = fmt.Errorf("%d of %d are; the server says:\n%s", v.Noted, o.hot+o.cold, s.Output())
		}
		return err
	})
}

const (
	cacheMisses = "modelplane_maas_key_cache_misses_total"
	cacheKeys   = "modelplane_maas_key_cache_keys"
	heldBytes   = "modelplane_payload_held_bytes"
)

// ask is a question of some of n subscriptions, with what must be the answer: somebody who owns one asks for a model, or names
// theirs, or somebody owns all of them.
func ask(turn, n int) question {
	i := rand.IntN(n) //nolint:gosec // any will do
	q := question{Username: "somebody", Groups: []string{staff, teamOf(i)}, Model: modelSpace + "/" + modelOf(i), answer: subscriptionOf(i)}
	switch turn % 3 {
	case 1:
		q.Named = subscriptionOf(i)
	case 2:
		q.Groups = []string{staff, everybody}
		q.answer = subscriptionOf(bestFor(modelOf(i), n))
	}
	return q
}

// bestFor a model is the subscription with the highest priority that has it.
func bestFor(model string, n int) int {
	for i := n - 1; i >= 0; i-- {
		for _, m := range modelsOf(i) {
			if m == model {
				return i
			}
		}
	}
	return 0
}

// measureSelect asks servers with few and many subscriptions in turns, and then each as fast as it answers.
func (o options) measureSelect(b *bed, r *report) {
	b.Helper()
	client := b.client(o.clients)
	defer client.CloseIdleConnections()
	var ways []load.Ask
	for _, s := range b.servers {
		a := newAsker(client, s.internal, b.token)
		ways = append(ways, func(ctx context.Context, turn int) error { return a.choose(ctx, ask(turn, s.subscriptions)) })
	}
	o.say("asking for subscriptions")
	if _, err := load.Turns(b.Context(), o.each/10, ways...); err != nil { // connections are made and code is warm before anything counts
		b.Fatal(err)
	}
	got, err := load.Turns(b.Context(), o.each, ways...)
	if err != nil {
		b.Fatal(err)
	}
	for i, way := range ways {
		r.Selects[i].Turns = got[i]
		r.Selects[i].Rush = load.Load{Clients: o.clients, Duration: o.each}.Run(b.Context(), way)
	}
}

// usualHeld is what the processor holds of bodies if nobody says.
const usualHeld = 128 << 20

// measureGateway puts the processor between clients and a model.
func (o options) measureGateway(b *bed, s *server, r *report) {
	b.Helper()
	crowd := 2 * o.streams
	o.say("starting Envoy and the payload processor")
	g := o.newGateway(b, s, max(crowd, rateClients))
	p := &r.Processor
	p.IdleMiB, _ = b.memory(g.processor)
	o.say("asking a model %.0f times a second with the processor, and as often without", o.rate)
	o.atRate(b, g, o.each/10) // connections are made and code is warm before anything counts
	p.Plain, p.Checked = o.atRate(b, g, o.each)
	p.AddedP50, p.AddedP99 = p.Checked.P50-p.Plain.P50, p.Checked.P99-p.Plain.P99
	_, p.RateMiB = b.memory(g.processor)

	o.say("%d streams with prompts of %d bytes", o.streams, o.prompt)
	body := prompt(modelOf(0), o.prompt, true)
	p.PlainStreams = o.stream(b, g, plainHost, body)
	p.CheckedStreams = o.stream(b, g, checkedHost, body)
	p.FirstAddedP50, p.FirstAddedP99 = p.CheckedStreams.First.P50-p.PlainStreams.First.P50, p.CheckedStreams.First.P99-p.PlainStreams.First.P99
	_, p.StreamsMiB = b.memory(g.processor)

	o.say("%d prompts that are there but for their last byte", o.streams)
	p.All = g.hold(b, o.streams, body)
	room := usualHeld
	if o.held > 0 {
		room = o.held
	}
	long := prompt(modelOf(0), room*3/2/crowd, true)
	o.say("%d prompts of %d bytes, which are more than there is room for", crowd, len(long))
	p.Room = float64(room) / (1 << 20)
	p.TooMany = g.hold(b, crowd, long)
	o.say("and one more when they are gone")
	if err := g.ask(b.Context(), checkedHost, prompt(modelOf(0), o.prompt, false)); err != nil {
		b.Fatal(err)
	}
	p.LeftBytes = b.metric(g.metrics, heldBytes)
	_, p.PeakMiB = b.memory(g.processor)
	p.Complaints = complaints(g.processor.Output())
	_, p.EnvoyMiB = b.memory(g.envoy)
}

// rateClients are as many as wait when an answer takes 150 ms at 200 requests per second.
const rateClients = 32

// atRate asks with and without the processor at the same time, so that whatever else happens on the machine happens to both.
func (o options) atRate(b *bed, g *gateway, d time.Duration) (plain, checked load.Figures) {
	b.Helper()
	body := prompt(modelOf(0), 1<<10, false)
	l := load.Load{Clients: rateClients / 2, Rate: o.rate, Duration: d, Kind: kind}
	var group sync.WaitGroup
	for host, into := range map[string]*load.Figures{plainHost: &plain, checkedHost: &checked} {
		group.Go(func() {
			*into = l.Run(b.Context(), func(ctx context.Context, _ int) error { return g.ask(ctx, host, body) })
		})
	}
	group.Wait()
	return plain, checked
}

// kind of a failure: the status, if there is one.
func kind(err error) string {
	if r, is := errors.AsType[*refused](err); is {
		return strconv.Itoa(r.status)
	}
	return "failed"
}

// stream has clients read one stream after the other.
func (o options) stream(b *bed, g *gateway, host string, body []byte) (out streams) {
	b.Helper()
	var first load.Tally
	out.Whole = load.Load{Clients: o.streams, Duration: o.each, Kind: kind}.Run(b.Context(), func(ctx context.Context, _ int) error {
		took, err := g.stream(ctx, host, bytes.NewReader(body), len(body))
		first.Add(took, err)
		return err
	})
	out.First = first.Figures(0)
	return out
}

// hold sends so many requests but for their last byte, waits until the processor has what it takes of them, and then sends the rest.
func (g *gateway) hold(b *bed, n int, body []byte) (out holding) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	release := make(chan struct{})
	var over atomic.Int64
	var mu sync.Mutex
	var group sync.WaitGroup
	out.Requests, out.Bytes = n, len(body)
	for range n {
		group.Go(func() {
			_, err := g.stream(ctx, checkedHost, &slow{body, release}, len(body))
			over.Add(1)
			mu.Lock()
			defer mu.Unlock()
			switch r, is := errors.AsType[*refused](err); {
			case err == nil:
				out.Answered++
			case is && r.status == http.StatusServiceUnavailable:
				out.Refused++
			default:
				if out.Failed++; out.First == "" {
					out.First = err.Error()
				}
			}
		})
	}
	for began := time.Now(); time.Since(began) < 50*time.Second; { // a body may take a minute to arrive
		held := b.metric(g.metrics, heldBytes)
		out.HeldMiB = max(out.HeldMiB, held/(1<<20))
		if held >= 0.95*float64(n-int(over.Load()))*float64(len(body)) {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	out.MiB, _ = b.memory(g.processor)
	close(release)
	group.Wait()
	_, out.PeakMiB = b.memory(g.processor)
	return out
}
