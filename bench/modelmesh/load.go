// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/bench/load"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// What is called: any unary method does, and this header names the model to every mesh of the API and to our runtime.
const (
	modelHeader = "mm-model-id"
	method      = "/inference.GRPCInferenceService/ModelInfer"
)

// dial opens a connection to each address.
func dial(addresses ...string) ([]*grpc.ClientConn, error) {
	var list []*grpc.ClientConn
	for _, address := range addresses {
		c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostMessage), grpc.MaxCallSendMsgSize(mostMessage)))
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", address, err)
		}
		list = append(list, c)
	}
	return list, nil
}

// call sends a request to a model and checks that the answer is the echo of it, if it should be.
func call(ctx context.Context, c *grpc.ClientConn, model string, payload []byte, checked bool) error {
	request, answer := raw(payload), raw{}
	ctx = metadata.AppendToOutgoingContext(ctx, modelHeader, model)
	if err := c.Invoke(ctx, method, &request, &answer, grpc.ForceCodecV2(codec{})); err != nil {
		return err
	}
	if checked && !bytes.Equal(request, answer) {
		return fmt.Errorf("model %s answers with %d other bytes", model, len(answer))
	}
	return nil
}

// calls are what a mesh is asked: any of the models, through any of the connections.
type calls struct {
	connections []*grpc.ClientConn
	models      []string
	payload     int
	checked     bool
	patience    time.Duration
}

// run lets clients make calls. Failures are told apart by their gRPC codes.
func (a calls) run(ctx context.Context, l load.Load) load.Figures {
	payload := make([]byte, a.payload)
	l.Kind = func(err error) string { return status.Code(err).String() }
	return l.Run(ctx, func(ctx context.Context, _ int) error {
		limited, cancel := context.WithTimeout(ctx, a.patience)
		defer cancel()
		return call(limited, oneOf(a.connections), oneOf(a.models), payload, a.checked)
	})
}

// oneOf takes any of a list.
func oneOf[T any](list []T) T { return list[rand.IntN(len(list))] }

// register makes models known to a mesh by its API, by some clients at once.
func register(ctx context.Context, connections []*grpc.ClientConn, models []string, modelType string, clients int) error {
	errs := make(chan error, clients)
	for n := range clients {
		go func() {
			api := wire.NewModelMeshClient(connections[n%len(connections)])
			var err error
			for i := n; err == nil && i < len(models); i += clients {
				_, err = api.RegisterModel(ctx, &wire.RegisterModelRequest{ModelId: models[i],
					ModelInfo: &wire.ModelInfo{Type: modelType, Path: "models/" + models[i]}})
			}
			errs <- err
		}()
	}
	var first error
	for range clients {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// names are so many ids.
func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s%06d", prefix, i)
	}
	return list
}
