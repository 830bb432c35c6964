// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// A model for which there is no room is loaded when somebody asks for it, and until then nobody would know that its path is
// wrong. So whoever stands before the runtime and fetches models is asked once, when the model is registered to be loaded,
// whether it is there. Nothing is fetched for that.
const (
	headerCheck  = "mm-check"
	checkTimeout = 30 * time.Second
	checksAtOnce = 4
	mostChecks   = 256 // that wait; others are found out about when somebody asks
)

// check has a model looked for that has never been loaded anywhere.
func (m *Mesh) check(id string, record *store.Model) {
	if record.Size != 0 || len(record.Failures) > 0 || m.checking.Add(1) > mostChecks {
		m.checking.Add(-1)
		return
	}
	m.background(func(ctx context.Context) {
		defer m.checking.Add(-1)
		select {
		case m.checks <- struct{}{}:
			defer func() { <-m.checks }()
		case <-ctx.Done():
			return
		}
		if err := m.runtime.check(ctx, id, record); err != nil && m.cache().get(id) == nil {
			message := status.Convert(err).Message()
			m.log.Warn("A model that waits for room cannot be loaded", "model", id, "type", record.Type(), "err", message)
			m.books.failed(id, 0, message)
		}
	})
}

// check asks whoever fetches models. Only one who has understood the question is believed.
func (r *runtimeClient) check(ctx context.Context, id string, record *store.Model) error {
	asked, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, headerCheck, "true"), checkTimeout)
	defer cancel()
	var trailer metadata.MD
	_, err := r.api.PredictModelSize(asked, &wire.PredictModelSizeRequest{
		ModelId: id, ModelType: record.Type(), ModelPath: record.Path, ModelKey: record.Key(),
	}, grpc.Trailer(&trailer))
	if err == nil || len(trailer.Get(headerCheck)) == 0 {
		return nil
	}
	return err //nolint:wrapcheck // its words are for the status
}

// noRoom tells whether a load was refused for lack of memory.
func noRoom(err error) bool {
	o, ours := asOutcome(err)
	return ours && o.kind == outcomeRefused && status.Code(o.err) == codes.ResourceExhausted
}
