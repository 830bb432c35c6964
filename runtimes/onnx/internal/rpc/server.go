// SPDX-License-Identifier: Apache-2.0

// Package rpc speaks gRPC: the open inference protocol v2 and the standard health service. It turns messages into tensors
// and back and leaves everything else to package inference.
package rpc

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
	pb "github.com/modelplane/modelplane/runtimes/onnx/internal/inferencepb"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/tensor"
)

type server struct {
	pb.UnimplementedGRPCInferenceServiceServer
	service *inference.Service
	version string
}

// streams bounds the requests that one connection has open.
const streams = 1000

// New makes a gRPC server for the service. The version is that of this program.
func New(service *inference.Service, version string) *grpc.Server {
	each := int(service.Budget.Each())
	s := grpc.NewServer(
		grpc.MaxRecvMsgSize(each),
		grpc.MaxSendMsgSize(1<<31-1),
		grpc.MaxConcurrentStreams(streams),
		grpc.UnaryInterceptor(interceptor),
	)
	pb.RegisterGRPCInferenceServiceServer(s, &server{service: service, version: version})
	healthpb.RegisterHealthServer(s, &health{service: service})
	return s
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
	if err := s.service.Find(r.Name, r.Version); err != nil {
		return nil, err
	}
	return &pb.ModelReadyResponse{Ready: s.service.Ready()}, nil
}

func (s *server) ServerMetadata(context.Context, *pb.ServerMetadataRequest) (*pb.ServerMetadataResponse, error) {
	return &pb.ServerMetadataResponse{Name: inference.ServerName, Version: s.version, Extensions: inference.Extensions}, nil
}

func (s *server) ModelMetadata(_ context.Context, r *pb.ModelMetadataRequest) (*pb.ModelMetadataResponse, error) {
	if err := s.service.Find(r.Name, r.Version); err != nil {
		return nil, err
	}
	return &pb.ModelMetadataResponse{
		Name:     s.service.Name,
		Versions: []string{inference.Version},
		Platform: inference.Platform,
		Inputs:   describe(s.service.Inputs),
		Outputs:  describe(s.service.Outputs),
	}, nil
}

func describe(specs []tensor.Spec) []*pb.ModelMetadataResponse_TensorMetadata {
	all := make([]*pb.ModelMetadataResponse_TensorMetadata, len(specs))
	for i, s := range specs {
		all[i] = &pb.ModelMetadataResponse_TensorMetadata{Name: s.Name, Datatype: string(s.Type), Shape: s.Shape}
	}
	return all
}

func (s *server) ModelInfer(ctx context.Context, r *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	began := time.Now()
	answer, err := s.infer(ctx, r)
	code := codes.OK
	if err != nil {
		code = statuses[inference.KindOf(err)]
	}
	s.service.Metrics.Answered("grpc", code.String(), time.Since(began))
	return answer, err
}

func (s *server) infer(ctx context.Context, r *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	if err := s.service.Find(r.ModelName, r.ModelVersion); err != nil {
		return nil, err
	}
	release, err := s.service.Budget.Hold(int64(proto.Size(r)))
	if err != nil {
		return nil, err
	}
	defer release()
	inputs, err := decode(r)
	if err != nil {
		return nil, err
	}
	wanted := make([]string, len(r.Outputs))
	for i, o := range r.Outputs {
		wanted[i] = o.GetName()
	}
	outputs, err := s.service.Infer(ctx, inputs, wanted)
	if err != nil {
		return nil, err
	}
	return encode(s.service.Name, r, outputs), nil
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
