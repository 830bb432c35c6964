// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	method, _ := grpc.MethodFromServerStream(stream)
	ctx := stream.Context()
	header, _ := metadata.FromIncomingContext(ctx)
	if _, known := m.runtime.method(method); !known && strings.HasPrefix(method, "/mmesh.") {
		return status.Error(codes.Unimplemented, "the method "+method[1:]+" is not for clients")
	}
	x := newExchange(stream, method, passedOn(header))
	defer x.close()
	c, err := m.identify(ctx, x, header)
	if err == nil {
		err = m.route(ctx, c)
		if status.Code(err) == codes.NotFound && c.vmodel != "" && x.movable() {
			err = m.routeAgain(ctx, c, err)
		}
	}
	if err != nil && ctx.Err() != nil {
		err = status.FromContextError(ctx.Err()).Err()
	}
	m.account(x, c, header, err)
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
	words := []any{"method", x.method[1:], "model", c.id, "vmodel", c.vmodel, "code", status.Code(err).String(), "took", took.String(), "received", received, "sent", x.sent}
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
	model, vmodel, err := idsOf(header)
	if err != nil {
		return nil, err
	}
	plane := m.dataplane.Load()
	rule, named := plane.methods[x.method]
	if !named && !plane.others {
		return nil, status.Error(codes.Unimplemented, "the method "+x.method[1:]+" is not among those that are routed here")
	}
	if named && len(rule.path) > 0 { // whoever is named by headers may let the other side speak first
		id, err := idWithin(x, rule.path)
		if err != nil {
			return nil, err
		}
		if id != "" {
			model, vmodel = id, ""
			if rule.vmodel {
				model, vmodel = "", id
			}
		}
	}
	switch {
	case vmodel != "":
		c.vmodel = vmodel
		c.id, err = m.resolve(ctx, vmodel)
		return c, err
	case model != "":
		c.id = model
		return c, nil
	}
	return nil, status.Error(codes.InvalidArgument, "the call names no model; set the header mm-model-id or mm-vmodel-id")
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

// idsOf reads the headers that name a model.
func idsOf(header metadata.MD) (model, vmodel string, err error) {
	models := append(header.Get("mm-model-id"), header.Get("mm-model-id-bin")...)
	models = append(models, header.Get("tas-model-id")...)
	vmodels := append(header.Get("mm-vmodel-id"), header.Get("mm-vmodel-id-bin")...)
	switch {
	case len(models) > 0 && len(vmodels) > 0:
		return "", "", status.Error(codes.InvalidArgument, errBothIDs.Error())
	case len(models) > 1, len(vmodels) > 1:
		return "", "", status.Error(codes.InvalidArgument, "the call names several models; call each of them by itself")
	case len(models) == 1:
		return models[0], "", nil
	case len(vmodels) == 1:
		return "", vmodels[0], nil
	}
	return "", "", nil
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
