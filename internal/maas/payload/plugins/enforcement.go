// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/modelplane/modelplane/internal/maas/payload/config"
	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
)

// enforcement asks whether a request may go on, and denies when nobody can say.
type enforcement struct {
	enforcer enforcer.Enforcer
	timeout  time.Duration
}

func newEnforcement(p config.Plugin, w *World) (any, error) {
	if w.Enforcer == nil {
		return nil, p.Errorf("this process was started without anything that could decide; see its flags")
	}
	return enforcement{w.Enforcer, w.DecideTimeout}, none(p)
}

func (e enforcement) Request(ctx context.Context, x *exchange.Exchange) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	decision, err := e.decide(ctx, enforcer.Request{
		ID: x.Headers.Get(exchange.RequestID), Method: x.Headers.Get(":method"), Host: x.Headers.Get(":authority"), Path: x.Path,
		Headers: x.Client, Model: x.Model(), Format: x.Format, Stream: x.Stream(), BodyBytes: len(x.Raw), MaxTokens: x.MaxTokens(),
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if decision.Report != nil {
			decision.Report(enforcer.Usage{Status: http.StatusServiceUnavailable}) // it goes nowhere
		}
		return &Undecided{err}
	}
	if !decision.Allowed() {
		return &exchange.Refusal{
			Status: decision.Status, Message: decision.Message, Code: decision.Code, Headers: decision.Headers,
			Body: decision.Body, ContentType: decision.ContentType,
		}
	}
	for name, value := range decision.Headers {
		x.Headers.Set(name, value)
	}
	x.Report = decision.Report
	led(x, decision.NoModel)
	return nil
}

// led has the route follow what was decided about: the model that is paid for answers, and a request for no model reaches none.
func led(x *exchange.Exchange, noModel bool) {
	switch x.NoModel = noModel; {
	case noModel:
		x.Lead(exchange.ProviderHeader, "")
		x.Lead(exchange.ModelHeader, "")
	case exchange.PathModel(x.Path) != "":
		x.Lead(exchange.ModelHeader, "")
	case x.Headers.Get(exchange.ModelHeader) != "" && x.Model() != "":
		x.Lead(exchange.ModelHeader, x.Model())
	}
}

// Response has nothing to do: what answers cost is read wherever a request was decided about.
func (enforcement) Response(*exchange.Exchange) (exchange.Filter, error) { return nil, nil }

// decide takes a panic for an error.
func (e enforcement) decide(ctx context.Context, r enforcer.Request) (d enforcer.Decision, err error) {
	defer func() {
		if p := recover(); p != nil {
			d, err = enforcer.Decision{}, fmt.Errorf("it panicked: %v", p)
		}
	}()
	return e.enforcer.Decide(ctx, r)
}

// Undecided is why nobody could say whether a request may go on. The client is told no more than that.
type Undecided struct{ err error }

func (u *Undecided) Error() string { return "nobody could decide about a request: " + u.err.Error() }

func (u *Undecided) Unwrap() error { return u.err }

// Refusal is what the client is told.
func (u *Undecided) Refusal() *exchange.Refusal {
	return &exchange.Refusal{
		Status: http.StatusServiceUnavailable, Message: "it cannot be told at the moment whether this request is permitted; try again",
		Headers: map[string]string{"retry-after": "1"},
	}
}
