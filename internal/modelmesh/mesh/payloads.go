// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/payload"
)

// payloads lets processors see what models are asked and what they answer: the first message of each side.
type payloads struct{ processors *payload.Processors }

func newPayloads(set *Settings, log *slog.Logger, dropped func(string)) (*payloads, error) {
	processors, err := payload.New(set.PayloadProcessors, payload.Options{Threads: set.PayloadThreads, Capacity: set.PayloadQueue, Log: log, Dropped: dropped})
	return &payloads{processors}, err
}

func (p *payloads) close(ctx context.Context) { p.processors.Close(ctx) }

// watch hands on the request, and the answer when it comes. What it returns is called when the call has ended.
func (p *payloads) watch(c *call, to *outbound) func(error) {
	if !p.processors.Wants(c.id, c.vmodel, c.x.method[1:]) {
		return func(error) {}
	}
	one := payload.Payload{ID: rand.Text(), ModelID: c.id, VModelID: c.vmodel, Method: c.x.method[1:], Metadata: words(c.x.header)}
	if f, err := c.x.first(); err == nil && f != nil {
		one.Data = f.data.Materialize()
	}
	p.processors.Request(one)
	one.Data, one.Metadata = nil, nil
	to.answered = func(f *frame) { one.Data = f.data.Materialize() }
	return func(err error) {
		one.Status = status.Code(err).String()
		p.processors.Response(one)
	}
}

// words are headers that can be shown. Whatever lets somebody in stays here.
func words(header metadata.MD) map[string]string {
	out := make(map[string]string, len(header))
	for name, values := range header {
		if name != "authorization" && name != "cookie" && !strings.HasSuffix(name, "-bin") {
			out[name] = strings.Join(values, ",")
		}
	}
	return out
}
