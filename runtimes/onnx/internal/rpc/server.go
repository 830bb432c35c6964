// SPDX-License-Identifier: Apache-2.0

// Package rpc speaks gRPC: the open inference protocol v2 and the standard health service. It turns messages into tensors
// and back and leaves everything else to package inference.
package rpc

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
)

type server struct {
	pb.UnimplementedGRPCInferenceServiceServer
	service *inference.Service
	version string
}

// New answers gRPC for the service, over HTTP/2. The version is that of this program.
func New(service *inference.Service, version string) http.Handler {
	own := &server{service: service, version: version}
	others := grpc.NewServer(grpc.MaxRecvMsgSize(smallMessage), grpc.UnaryInterceptor(interceptor))
	pb.RegisterGRPCInferenceServiceServer(others, own)
	healthpb.RegisterHealthServer(others, &health{service: service})
	return &handler{server: own, others: others}
}

var statuses = map[inference.Kind]codes.Code{
	inference.Internal:    codes.Internal,
	inference.Invalid:     codes.InvalidArgument,
	inference.NotFound:    codes.NotFound,
	inference.TooLarge:    codes.ResourceExhausted,
	inference.Busy:        codes.ResourceExhausted,
	inference.Unavailable: codes.Unavailable,
	inference.Late:        codes.DeadlineExceeded,
	inference.Cancelled:   codes.Canceled,
	inference.Unsupported: codes.Unimplemented,
	inference.Unfit:       codes.FailedPrecondition,
}

// interceptor gives every error its status and keeps a defect in one request from ending the process.
func interceptor(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "request failed", "method", info.FullMethod, "error", p)
			err = status.Error(codes.Internal, "the server failed on this request")
		}
	}()
	answer, err = handler(ctx, request)
	if err == nil {
		return answer, nil
	}
	code := statuses[inference.KindOf(err)]
	if code == codes.Internal {
		slog.ErrorContext(ctx, "request failed", "method", info.FullMethod, "error", err)
	}
	// The text may quote what the client sent; a status must be valid UTF-8.
	return nil, status.Error(code, strings.ToValidUTF8(err.Error(), "�"))
}

func (s *server) ServerLive(context.Context, *pb.ServerLiveRequest) (*pb.ServerLiveResponse, error) {
	return &pb.ServerLiveResponse{Live: true}, nil
}

func (s *server) ServerReady(context.Context, *pb.ServerReadyRequest) (*pb.ServerReadyResponse, error) {
	return &pb.ServerReadyResponse{Ready: s.service.Ready()}, nil
}

func (s *server) ModelReady(_ context.Context, r *pb.ModelReadyRequest) (*pb.ModelReadyResponse, error) {
	_, done, err := s.service.Use(r.Name, r.Version)
	if err != nil {
		return nil, err
	}
	done()
	return &pb.ModelReadyResponse{Ready: s.service.Ready()}, nil
}

func (s *server) ServerMetadata(context.Context, *pb.ServerMetadataRequest) (*pb.ServerMetadataResponse, error) {
	return &pb.ServerMetadataResponse{Name: inference.ServerName, Version: s.version, Extensions: inference.Extensions}, nil
}

func (s *server) ModelMetadata(_ context.Context, r *pb.ModelMetadataRequest) (*pb.ModelMetadataResponse, error) {
	m, done, err := s.service.Use(r.Name, r.Version)
	if err != nil {
		return nil, err
	}
	defer done()
	return &pb.ModelMetadataResponse{
		Name:     m.Name,
		Versions: []string{inference.Version},
		Platform: inference.Platform,
		Inputs:   describe(m.Inputs),
		Outputs:  describe(m.Outputs),
	}, nil
}

func describe(specs []tensor.Spec) []*pb.ModelMetadataResponse_TensorMetadata {
	all := make([]*pb.ModelMetadataResponse_TensorMetadata, len(specs))
	for i, s := range specs {
		all[i] = &pb.ModelMetadataResponse_TensorMetadata{Name: s.Name, Datatype: string(s.Type), Shape: s.Shape}
	}
	return all
}

// infer answers one message, within what its share of the budget allows.
func (s *server) infer(ctx context.Context, r *pb.ModelInferRequest, share *inference.Share) (*pb.ModelInferResponse, error) {
	m, done, err := s.service.Use(r.ModelName, r.ModelVersion)
	if err != nil {
		return nil, err
	}
	defer done()
	inputs, err := decode(r)
	if err != nil {
		return nil, err
	}
	wanted := make([]string, len(r.Outputs))
	for i, o := range r.Outputs {
		wanted[i] = o.GetName()
	}
	outputs, err := m.Infer(ctx, inputs, wanted)
	if err != nil {
		return nil, err
	}
	for _, t := range outputs {
		if err := share.Grow(int64(len(t.Data)) + perNumber*int64(t.Len())); err != nil {
			return nil, err
		}
	}
	return encode(m.Name, r, outputs), nil
}

// health answers Kubernetes' gRPC probes. Watching is left out: nobody who probes does it.
type health struct {
	healthpb.UnimplementedHealthServer
	service *inference.Service
}

func (h *health) Check(_ context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if name := r.Service; name != "" && name != pb.GRPCInferenceService_ServiceDesc.ServiceName {
		return nil, &inference.Error{Kind: inference.NotFound, Message: "there is no service of this name"}
	}
	if !h.service.Ready() {
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}
