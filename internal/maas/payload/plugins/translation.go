// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
	"github.com/modelplane/modelplane/internal/maas/payload/jsonbody"
	"github.com/modelplane/modelplane/internal/maas/payload/sse"
	"github.com/modelplane/modelplane/internal/maas/payload/translate"
)

// translation speaks to providers in their own API.
type translation struct{ world *World }

// anthropicVersion is the form of the messages API that we speak.
const anthropicVersion = "2023-06-01"

func (t translation) Request(_ context.Context, x *exchange.Exchange) error {
	if x.Provider == nil {
		return nil
	}
	if x.Body == nil {
		return exchange.Refuse(http.StatusBadRequest, "the body must be a JSON object")
	}
	p := x.Provider
	if p.Format == "" {
		p.Format, p.Path = usual(x.Format)
	}
	how, err := translate.For(x.Format, translate.Target{Kind: p.Kind, Format: p.Format, Model: p.TargetModel}, t.world.Now)
	if err != nil {
		return exchange.Refuse(http.StatusBadRequest, "%v", err)
	}
	stream := x.Stream()
	if err := x.Body.SetString("model", p.TargetModel); err != nil {
		return err
	}
	if how.Request != nil {
		text, err := how.Request(x.Body.Bytes())
		if unsupported, is := errors.AsType[*translate.Unsupported](err); is {
			return exchange.Refuse(http.StatusBadRequest, "%s", unsupported.Message)
		}
		if err != nil {
			return err
		}
		if x.Body, err = jsonbody.Parse(text); err != nil {
			return err
		}
	}
	x.Translator = how
	if p.Format == string(enforcer.Messages) {
		if x.Format != enforcer.Messages || x.Headers.Get("anthropic-version") == "" {
			x.Headers.Set("anthropic-version", anthropicVersion)
		}
	}
	return t.address(x, stream)
}

// usual is what a provider with the APIs of OpenAI is asked by, and where.
func usual(f enforcer.Format) (format, path string) {
	switch f {
	case enforcer.Completions:
		return string(f), "/v1/completions"
	case enforcer.Embeddings:
		return string(f), "/v1/embeddings"
	case enforcer.Responses:
		return string(f), "/v1/responses"
	}
	return string(enforcer.ChatCompletions), "/v1/chat/completions"
}

// address says where at the provider. The host is left alone when the route is chosen anew, since routes are chosen by it.
func (translation) address(x *exchange.Exchange, stream bool) error {
	path := x.Provider.Path
	if strings.ContainsAny(path, "{}") {
		return fmt.Errorf("path %q of provider %s names a setting that its config does not have", path, x.Provider.Name)
	}
	if stream && x.Provider.Format == translate.VertexMessages {
		path = strings.Replace(path, ":rawPredict", ":streamRawPredict", 1)
	}
	if path != "" {
		x.Headers.Set(":path", path)
	}
	if !x.Reroute {
		x.Headers.Set(":authority", x.Provider.Endpoint)
	}
	// Answers are read here, and a compressed one cannot be.
	x.Headers.Remove("accept-encoding")
	return nil
}

// Response puts the answer into the client's words.
func (translation) Response(x *exchange.Exchange) (exchange.Filter, error) {
	how, is := x.Translator.(*translate.Translation)
	if !is || how.Passes() {
		return nil, nil
	}
	if coding := x.Answer.Get("content-encoding"); coding != "" && coding != "identity" {
		return nil, exchange.Refuse(http.StatusBadGateway, "the provider's answer is compressed, though that was not asked for")
	}
	x.Answer.Remove("content-length")
	switch {
	case x.Status >= http.StatusBadRequest:
		if how.Error == nil {
			return nil, nil
		}
		x.Answer.Set("content-type", "application/json")
		return &whole{then: func(body []byte) ([]byte, error) { return how.Error(x.Status, body), nil }}, nil
	case strings.HasPrefix(x.Answer.Get("content-type"), "text/event-stream"):
		return &events{how: how.Stream(), splitter: sse.Splitter{Limit: mostEvent}}, nil
	}
	return &whole{then: how.Answer}, nil
}

// What is kept of an answer at most: one event of a stream, or a whole answer.
const (
	mostEvent  = 4 << 20
	mostAnswer = 16 << 20
)

// whole translates an answer when it is complete.
type whole struct {
	body []byte
	then func([]byte) ([]byte, error)
}

func (w *whole) Feed(piece []byte) ([]byte, error) {
	if len(w.body)+len(piece) > mostAnswer {
		return nil, errors.New("the provider's answer is too long to be translated")
	}
	w.body = append(w.body, piece...)
	return nil, nil
}

func (w *whole) End() ([]byte, error) { return w.then(w.body) }

// events translates a stream as it comes.
type events struct {
	splitter sse.Splitter
	how      translate.Streamer
	out      []byte
}

func (e *events) Feed(piece []byte) ([]byte, error) {
	e.out = e.out[:0]
	err := e.splitter.Feed(piece, e.event)
	return e.out, err
}

func (e *events) event(in sse.Event) error {
	translated, err := e.how.Event(in)
	for _, t := range translated {
		e.out = sse.Append(e.out, t)
	}
	return err
}

func (e *events) End() ([]byte, error) {
	e.out = e.out[:0]
	err := e.splitter.End(e.event)
	for _, t := range e.how.End() {
		e.out = sse.Append(e.out, t)
	}
	return e.out, err
}
