// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/splice"
)

// dataplane says which methods name their model inside the message, and where.
type dataplane struct {
	methods map[string]methodRule
	others  bool // methods that are not named are routed as well, by their headers
}

type methodRule struct {
	path   []int32
	vmodel bool
}

// parseDataplane understands the JSON of MM_DATAPLANE_CONFIG. Nothing at all means that every method is routed by headers.
func parseDataplane(raw []byte) (*dataplane, error) {
	out := &dataplane{methods: map[string]methodRule{}, others: true}
	if len(strings.TrimSpace(string(raw))) == 0 {
		return out, nil
	}
	var file struct {
		Methods map[string]struct {
			Path   []int32 `json:"idExtractionPath"`
			VModel bool    `json:"vModelId"`
		} `json:"rpcConfigs"`
		Others bool `json:"allowOtherRpcs"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("the data plane's configuration is no JSON as expected: %w", err)
	}
	out.others = file.Others
	for name, rule := range file.Methods {
		if len(rule.Path) > 0 {
			if err := splice.Check(rule.Path); err != nil {
				return nil, fmt.Errorf("the data plane's method %s: %w", name, err)
			}
		}
		out.methods["/"+strings.TrimPrefix(name, "/")] = methodRule{rule.Path, rule.VModel}
	}
	return out, nil
}

// handle is every call of a client that is not one of the mesh's own methods.
func (m *Mesh) handle(_ any, stream grpc.ServerStream) error {
	m.memory.use()
	method, _ := grpc.MethodFromServerStream(stream)
	header, _ := metadata.FromIncomingContext(stream.Context())
	if _, known := m.runtime.method(method); !known && strings.HasPrefix(method, "/mmesh.") {
		return status.Error(codes.Unimplemented, "the method "+method[1:]+" is not for clients")
	}
	x := newExchange(stream, method, passedOn(header), m.ledger)
	defer x.close()
	ctx := x.ctx
	c, err := m.answer(ctx, x, header)
	switch {
	case err != nil && wasTurnedAway(ctx):
		err = errFull
	case err != nil && ctx.Err() != nil:
		err = status.FromContextError(ctx.Err()).Err()
	}
	if u, ok := errors.AsType[*unavailable](err); ok {
		u.tell(stream)
	}
	m.account(x, c, header, err)
	return err
}

// answer finds out whom a call is for, and has them answer.
func (m *Mesh) answer(ctx context.Context, x *exchange, header metadata.MD) (*call, error) {
	if plane := m.dataplane.Load(); !plane.others {
		if _, named := plane.methods[x.method]; !named {
			return nil, status.Error(codes.Unimplemented, "the method "+x.method[1:]+" is not among those that are routed here")
		}
	}
	all, err := m.severalOf(x, header)
	if err != nil {
		return nil, err
	}
	if all != nil {
		return &call{id: "several", named: all.names()}, all.answer(ctx)
	}
	c, err := m.identify(ctx, x, header)
	if err != nil {
		return c, err
	}
	return c, m.routeName(ctx, c)
}

// routeName is route, with another look at the name that the client used when its model is not there.
func (m *Mesh) routeName(ctx context.Context, c *call) error {
	err := m.route(ctx, c)
	if status.Code(err) == codes.NotFound && c.vmodel != "" && c.x.movable() {
		return m.routeAgain(ctx, c, err)
	}
	return err
}

// routeAgain is for a name whose model went away between two looks.
func (m *Mesh) routeAgain(ctx context.Context, c *call, err error) error {
	row, ok, failed := m.vmodels.Refresh(ctx, c.vmodel)
	if failed != nil || !ok {
		return err
	}
	next := row.Value.Active
	if next == c.id || next == "" {
		next = row.Value.Target
	}
	if next == c.id || next == "" {
		return err
	}
	c.id, c.excluded, c.last = next, nil, nil
	return m.route(ctx, c)
}

// account counts a call and logs it where that is wanted.
func (m *Mesh) account(x *exchange, c *call, header metadata.MD, err error) {
	took := time.Since(x.began)
	if c == nil {
		c = &call{}
	}
	x.mu.Lock()
	received := x.received
	x.mu.Unlock()
	m.metrics.api(x.method, c, took, received, x.sent, err)
	if !m.logEach.Load() && len(m.set.LogHeaders) == 0 {
		return
	}
	words := []any{"method", x.method[1:], "model", cmp.Or(c.named, c.id), "vmodel", c.vmodel, "code", status.Code(err).String(), "took", took.String(), "received", received, "sent", x.sent}
	for name, as := range m.set.LogHeaders {
		if values := header.Get(name); len(values) > 0 {
			words = append(words, as, strings.Join(values, ","))
		}
	}
	m.log.Info("Answered", words...)
}

// identify finds out which model a call is for: from the message where the configuration says so, else from the headers.
func (m *Mesh) identify(ctx context.Context, x *exchange, header metadata.MD) (*call, error) {
	c := &call{x: x, balanced: first(header, "mm-balanced") == "true"}
	models, vmodels := idsOf(header)
	if rule := m.dataplane.Load().methods[x.method]; len(rule.path) > 0 { // whoever is named by headers may let the other side speak first
		id, err := idWithin(x, rule.path)
		if err != nil {
			return nil, err
		}
		switch {
		case id != "" && rule.vmodel:
			models, vmodels = nil, []string{id}
		case id != "":
			models, vmodels = []string{id}, nil
		}
	}
	switch {
	case len(models)+len(vmodels) > 1:
		return nil, status.Error(codes.InvalidArgument, "the call names several models, and its method has one in its message; call each of them by itself")
	case len(vmodels) == 1 && vmodels[0] != "":
		var err error
		c.vmodel = vmodels[0]
		c.id, err = m.resolve(ctx, c.vmodel)
		return c, err
	case len(models) == 1 && models[0] != "":
		c.id = models[0]
		return c, nil
	}
	return nil, status.Error(codes.InvalidArgument, "the call names no model; set the header mm-model-id or mm-vmodel-id")
}

// namedWithin tells whether a method names its model inside the message, which then wins over headers.
func (m *Mesh) namedWithin(method string) bool {
	return len(m.dataplane.Load().methods[method].path) > 0
}

// idWithin reads the id out of the first message; empty when there is none.
func idWithin(x *exchange, path []int32) (string, error) {
	f, err := x.first()
	if err != nil || f == nil {
		return "", err
	}
	message, free := f.bytes()
	defer free()
	id, err := splice.Extract(message, path)
	if err != nil {
		return "", status.Error(codes.InvalidArgument, err.Error())
	}
	return id, nil
}

func first(header metadata.MD, name string) string {
	if values := header.Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

var errBothIDs = errors.New("the call names a model and a virtual model; set one of mm-model-id and mm-vmodel-id")

// idsOf reads the headers that name models.
func idsOf(header metadata.MD) (models, vmodels []string) {
	models = slices.Concat(header.Get("mm-model-id"), header.Get("mm-model-id-bin"), header.Get("tas-model-id"))
	return models, slices.Concat(header.Get("mm-vmodel-id"), header.Get("mm-vmodel-id-bin"))
}

// resolve finds the model that a name leads to.
func (m *Mesh) resolve(ctx context.Context, vmodel string) (string, error) {
	row, ok := m.vmodels.Get(vmodel)
	if !ok {
		asked, cancel := context.WithTimeout(ctx, claimTimeout)
		defer cancel()
		var err error
		if row, ok, err = m.vmodels.Refresh(asked, vmodel); err != nil {
			return "", status.Error(codes.Unavailable, "the virtual model "+vmodel+" is not known here and etcd does not answer; try again")
		}
	}
	switch {
	case !ok:
		return "", status.Error(codes.NotFound, "the virtual model "+vmodel+" does not exist")
	case row.Value.Active != "":
		return row.Value.Active, nil
	}
	return row.Value.Target, nil
}
