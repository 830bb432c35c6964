// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/modelplane/modelplane/bench/load"
	"github.com/modelplane/modelplane/internal/maas/keys"
)

// mostAnswer is how much of an answer is read.
const mostAnswer = 1 << 20

// newClient keeps a connection for each that asks at the same time.
func newClient(clients int, trust *tls.Config) *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: trust, MaxIdleConnsPerHost: clients, MaxConnsPerHost: clients}}
}

// asker asks a server of the API what gateways ask.
type asker struct {
	client  *http.Client
	address string
	header  http.Header
}

func newAsker(client *http.Client, address, token string) *asker {
	a := &asker{client: client, address: strings.TrimRight(address, "/"), header: http.Header{"Content-Type": {"application/json"}}}
	if token != "" {
		a.header.Set("Authorization", "Bearer "+token)
	}
	return a
}

// post sends what is asked and reads what is answered.
func (a *asker) post(ctx context.Context, path string, question, answer any, want int) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header = a.header.Clone()
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	if err != nil {
		return err
	}
	if response.StatusCode != want {
		return fmt.Errorf("%s answers %s: %.200s", path, response.Status, text)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("%s answers %.200s: %w", path, text, err)
	}
	return nil
}

// validate asks whether a key is good, and wants to hear that it is, or is not. id is how it must be called; empty: anything.
func (a *asker) validate(ctx context.Context, key, id string, good bool) error {
	var answer struct {
		Valid *bool  `json:"valid"`
		KeyID string `json:"keyId"`
	}
	if err := a.post(ctx, "/internal/v1/api-keys/validate", map[string]string{"key": key}, &answer, http.StatusOK); err != nil {
		return err
	}
	if answer.Valid == nil || *answer.Valid != good || good && id != "" && answer.KeyID != id {
		return fmt.Errorf("a key that is to be valid (%t) is answered with %+v", good, answer)
	}
	return nil
}

// question after a subscription, and the name that must be the answer; empty: any.
type question struct {
	Username string   `json:"username,omitempty"`
	Groups   []string `json:"groups,omitempty"`
	Named    string   `json:"requestedSubscription,omitempty"`
	Model    string   `json:"requestedModel,omitempty"`
	answer   string
}

func (a *asker) choose(ctx context.Context, q question) error {
	var answer struct {
		Name    string `json:"name"`
		Allowed bool   `json:"accessAllowed"`
		Error   string `json:"error"`
		Message string `json:"message"`
	}
	if err := a.post(ctx, "/internal/v1/subscriptions/select", q, &answer, http.StatusOK); err != nil {
		return err
	}
	if answer.Error != "" || answer.Name == "" || q.answer != "" && (answer.Name != q.answer || !answer.Allowed) {
		return fmt.Errorf("asked for %+v, the answer is %+v", q, answer)
	}
	return nil
}

// unknown is a key that nobody has, a new one each time.
func unknown() string {
	key, err := keys.Mint()
	if err != nil {
		panic(err) // there is no randomness
	}
	return key.Reveal()
}

// foreign is a server of the API that is there already.
type foreign struct {
	target, public, tokenFile, keysFile string
	insecure                            bool
	mint                                int
	user, groups, model                 string
}

func (f *foreign) register() {
	flag.StringVar(&f.target, "target", "", "address of another server of this API, where its internal routes are: only the load is put on it; empty: ours is started and measured")
	flag.StringVar(&f.tokenFile, "token-file", "", "with -target: file with a bearer token that the server wants to see")
	flag.BoolVar(&f.insecure, "insecure", false, "with -target: do not look at its certificate")
	flag.StringVar(&f.keysFile, "keys", "", "with -target: file with API keys that are good there, one per line")
	flag.IntVar(&f.mint, "mint", 0, "with -target: have so many keys made first, by the API, and revoke them at the end")
	flag.StringVar(&f.public, "public", "", "with -mint: address of the public routes, if it is another one")
	flag.StringVar(&f.user, "user", "", "with -target: for whom a subscription is asked for; X-MaaS-Username with -mint")
	flag.StringVar(&f.groups, "groups", "", "with -target: their groups, separated by commas; X-MaaS-Group with -mint")
	flag.StringVar(&f.model, "model", "", "with -target: the model that they ask for")
}

// foreignReport is what was seen of a server of which nothing is known but its address.
type foreignReport struct {
	Keys    int           `json:"keys"`
	Hit     *load.Figures `json:"hit,omitempty"`
	Miss    load.Figures  `json:"miss"`
	Unknown load.Figures  `json:"unknown"`
	Select  *load.Figures `json:"select,omitempty"`
}

// run puts the load on it.
func (f foreign) run(o options, out string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := f.measure(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, heading, "", "requests", "p50 ms", "p99 ms", "per second")
	for _, row := range []struct {
		name string
		f    *load.Figures
	}{{"keys that are good", r.Hit}, {"one unknown key", &r.Miss}, {"unknown keys, each once", &r.Unknown}, {"a subscription", r.Select}} {
		if row.f != nil {
			showRow(os.Stdout, row.name, *row.f)
		}
	}
	return load.Save(r, out)
}

func (f foreign) measure(ctx context.Context, o options) (r foreignReport, err error) {
	token := ""
	if f.tokenFile != "" {
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return r, err
		}
		token = strings.TrimSpace(string(text))
	}
	client := newClient(o.clients, &tls.Config{InsecureSkipVerify: f.insecure}) //nolint:gosec // the person says so
	defer client.CloseIdleConnections()
	a := newAsker(client, f.target, token)
	var known []string
	if f.keysFile != "" {
		if known, err = load.Lines(f.keysFile); err != nil {
			return r, err
		}
	}
	if f.mint > 0 {
		o.say("having %d keys made", f.mint)
		made, end, err := f.minted(ctx, client, token)
		defer end()
		if err != nil {
			return r, err
		}
		known = append(known, made...)
	}
	r.Keys = len(known)
	rush := load.Load{Clients: o.clients, Duration: o.each}
	if len(known) > 0 {
		o.say("asking for %d keys", len(known))
		hit := rush.Run(ctx, func(ctx context.Context, _ int) error {
			return a.validate(ctx, known[rand.IntN(len(known))], "", true) //nolint:gosec // any will do
		})
		r.Hit = &hit
	}
	o.say("asking for keys that nobody has")
	wrong := unknown()
	r.Miss = rush.Run(ctx, func(ctx context.Context, _ int) error { return a.validate(ctx, wrong, "", false) })
	r.Unknown = rush.Run(ctx, func(ctx context.Context, _ int) error { return a.validate(ctx, unknown(), "", false) })
	if f.user != "" || f.groups != "" {
		o.say("asking for a subscription")
		q := question{Username: f.user, Groups: f.groupList(), Model: f.model}
		chosen := rush.Run(ctx, func(ctx context.Context, _ int) error { return a.choose(ctx, q) })
		r.Select = &chosen
	}
	return r, ctx.Err()
}

func (f foreign) groupList() []string {
	return strings.FieldsFunc(f.groups, func(r rune) bool { return r == ',' })
}

// minted has keys made by the API; end revokes them, whatever happened.
func (f foreign) minted(ctx context.Context, client *http.Client, token string) (made []string, end func(), err error) {
	address := f.target
	if f.public != "" {
		address = f.public
	}
	a := newAsker(client, address, token)
	if f.user != "" { // for servers that believe what a gateway says
		groups, err := json.Marshal(f.groupList())
		if err != nil {
			return nil, func() {}, err
		}
		a.header.Set("X-MaaS-Username", f.user)
		a.header.Set("X-MaaS-Group", string(groups))
	}
	var ids []string
	end = func() {
		ctx := context.WithoutCancel(ctx)
		for _, id := range ids {
			if err := a.remove(ctx, id); err != nil {
				fmt.Fprintln(os.Stderr, "maas: key", id, "is left:", err)
			}
		}
	}
	for n := range f.mint {
		var answer struct {
			ID  string `json:"id"`
			Key string `json:"key"`
		}
		if err := a.post(ctx, "/v1/api-keys", map[string]string{"name": fmt.Sprintf("bench %d", n), "expiresIn": "1h"}, &answer, http.StatusCreated); err != nil {
			return nil, end, err
		}
		made, ids = append(made, answer.Key), append(ids, answer.ID)
	}
	return made, end, nil
}

func (a *asker) remove(ctx context.Context, id string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, a.address+"/v1/api-keys/"+id, http.NoBody)
	if err != nil {
		return err
	}
	request.Header = a.header.Clone()
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode/100 != 2 {
		return errors.New(response.Status)
	}
	return nil
}
