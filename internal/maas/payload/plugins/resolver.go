// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"strings"

	"github.com/modelplane/modelplane/internal/maas/payload/config"
	"github.com/modelplane/modelplane/internal/maas/payload/directory"
	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
)

// originHeader names the cluster that a request was sent on from.
const originHeader = "x-origin-cluster"

// resolver finds who runs the model that a request asks for.
type resolver struct {
	world *World
	// Hub has requests say which cluster sent them on, so that one that comes back is known.
	Hub bool `yaml:"hubMode"`
}

func newResolver(p config.Plugin, w *World) (any, error) {
	r := resolver{world: w}
	if err := p.Parameters(&r); err != nil {
		return nil, err
	}
	if r.Hub && w.Cluster == "" {
		return nil, p.Errorf("hubMode needs the cluster's name; set CLUSTER_NAME")
	}
	return r, nil
}

func (r resolver) Request(_ context.Context, x *exchange.Exchange) error {
	if r.world.Cluster != "" && x.Headers.Get(originHeader) == r.world.Cluster {
		return exchange.Refuse(http.StatusLoopDetected, "the request has come back to the cluster that sent it on; two models name each other as provider")
	}
	name := x.Model()
	model, external := r.world.Directory.Model(name)
	if !external {
		return r.own(x)
	}
	if len(model.Providers) == 0 {
		return exchange.Refuse(http.StatusServiceUnavailable, "no provider of the model %.100s can be asked: each is switched off or not there", name)
	}
	provider := model.Providers[r.pick(x, model)]
	x.Provider = &provider
	if before := x.Headers.Get(exchange.ProviderHeader); before != provider.Name {
		x.Reroute = true
	}
	x.Headers.Set(exchange.ProviderHeader, provider.Name)
	if exchange.PathModel(x.Path) != "" && x.Headers.Get(exchange.ModelHeader) != model.Name {
		x.Headers.Set(exchange.ModelHeader, model.Name) // the path will be the provider's, and chooses no route any more
		x.Reroute = true
	}
	if r.Hub {
		x.Headers.Set(originHeader, r.world.Cluster)
	}
	return nil
}

// own is for models of the cluster. Their servers know them by their own names, and a provider that the client has made up
// must not choose a route.
func (resolver) own(x *exchange.Exchange) error {
	x.Lead(exchange.ProviderHeader, "")
	if x.Body == nil || x.NoModel {
		return nil
	}
	if own := published(x.Body.String("model")); own != "" {
		return x.Body.SetString("model", own)
	}
	return nil
}

// published is the name in publishers/<namespace>/models/<name>.
func published(model string) string {
	parts := strings.Split(model, "/")
	if len(parts) < 4 || parts[0] != "publishers" || parts[2] != "models" {
		return ""
	}
	return strings.Join(parts[3:], "/")
}

// pick is a provider by weight. It is the same wherever a request is looked at: it follows from the request's id, which the
// gateway gives, and from nothing that another stage would have to be trusted with.
func (r resolver) pick(x *exchange.Exchange, model directory.Model) int {
	total := uint64(0)
	for _, p := range model.Providers {
		total += uint64(p.Weight) //nolint:gosec // above zero: others are not in the directory
	}
	var number uint64
	if id := x.Headers.Get(exchange.RequestID); id != "" {
		sum := sha256.Sum256([]byte(id + "\x00" + model.Key.String()))
		number = binary.BigEndian.Uint64(sum[:])
	} else {
		for i, p := range model.Providers { // an earlier stage may have chosen
			if p.Name == x.Headers.Get(exchange.ProviderHeader) {
				return i
			}
		}
		number = r.world.Pick()
	}
	number %= total
	for i, p := range model.Providers {
		if number < uint64(p.Weight) { //nolint:gosec // above zero
			return i
		}
		number -= uint64(p.Weight) //nolint:gosec // above zero
	}
	return 0
}
