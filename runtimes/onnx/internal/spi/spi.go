// SPDX-License-Identifier: Apache-2.0

// Package spi is how a mesh manages the models of this server: the gRPC service mmesh.ModelRuntime. It turns calls into
// those of package store and errors into statuses that the mesh understands. It answers no predictions.
package spi

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/modelmesh/wire"
	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/store"
)

// Format is the one kind of model that is loaded here.
const Format = "onnx"

// Options are what the mesh is told of this server.
type Options struct {
	Capacity    int64
	Loading     int
	LoadTimeout time.Duration
	// DefaultSize is what a model is taken for whose size is not known yet.
	DefaultSize int64
	Version     string
}

type server struct {
	wire.UnimplementedModelRuntimeServer
	store   *store.Store
	options Options
}

// Limits of the management API: one mesh calls it, with small messages.
const (
	largestMessage = 64 << 10
	callsAtOnce    = 256
)

// New answers for the models of a store.
func New(s *store.Store, o Options) *grpc.Server {
	g := grpc.NewServer(grpc.MaxRecvMsgSize(largestMessage), grpc.MaxConcurrentStreams(callsAtOnce), grpc.UnaryInterceptor(interceptor))
	wire.RegisterModelRuntimeServer(g, &server{store: s, options: o})
	return g
}

// statuses tell the mesh what became of a load: with FAILED_PRECONDITION and INVALID_ARGUMENT it knows that no memory is
// taken, and that the model itself must change.
var statuses = map[inference.Kind]codes.Code{
	inference.Internal:  codes.Internal,
	inference.Invalid:   codes.InvalidArgument,
	inference.Unfit:     codes.FailedPrecondition,
	inference.NotFound:  codes.NotFound,
	inference.Busy:      codes.ResourceExhausted,
	inference.Late:      codes.DeadlineExceeded,
	inference.Cancelled: codes.Canceled,
}

// interceptor gives every error its status and keeps a defect in one call from ending the process.
func interceptor(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "call failed", "method", info.FullMethod, "error", p)
			err = status.Error(codes.Internal, "the server failed on this call")
		}
	}()
	answer, err = handler(ctx, request)
	if err == nil {
		return answer, nil
	}
	// The text may quote a path; a status must be valid UTF-8.
	return nil, status.Error(statuses[inference.KindOf(err)], strings.ToValidUTF8(err.Error(), "�"))
}

func (s *server) LoadModel(ctx context.Context, r *wire.LoadModelRequest) (*wire.LoadModelResponse, error) {
	if err := checkFormat(r.GetModelKey()); err != nil {
		return nil, err
	}
	size, err := s.store.Load(ctx, r.GetModelId(), r.GetModelPath())
	if err != nil {
		return nil, err
	}
	return &wire.LoadModelResponse{SizeInBytes: uint64(size)}, nil
}

// checkFormat refuses a model that says it is none of ours.
func checkFormat(key string) error {
	if format := formatIn(key); format != "" && !strings.EqualFold(format, Format) {
		return inference.Invalidf("a model of the format %q cannot be loaded here; this server loads %q", format, Format)
	}
	return nil
}

// formatIn is the format that a key names, as an object or a word. The key is JSON when it comes from a control plane, and
// may be anything when somebody registers models by hand; then the file itself must tell.
func formatIn(key string) string {
	var said struct {
		Type json.RawMessage `json:"model_type"`
	}
	if err := json.Unmarshal([]byte(key), &said); err != nil {
		return ""
	}
	var object struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(said.Type, &object); err == nil {
		return object.Name
	}
	var word string
	if err := json.Unmarshal(said.Type, &word); err != nil {
		return ""
	}
	return word
}

func (s *server) UnloadModel(ctx context.Context, r *wire.UnloadModelRequest) (*wire.UnloadModelResponse, error) {
	if err := s.store.Unload(ctx, r.GetModelId()); err != nil {
		return nil, err
	}
	return &wire.UnloadModelResponse{}, nil
}

// PredictModelSize reads the head of the file where it is there already.
func (s *server) PredictModelSize(_ context.Context, r *wire.PredictModelSizeRequest) (*wire.PredictModelSizeResponse, error) {
	size, err := store.Predict(r.GetModelPath())
	if err != nil {
		size = s.options.DefaultSize // whatever is wrong with it is for the load to say
	}
	return &wire.PredictModelSizeResponse{SizeInBytes: uint64(size)}, nil
}

func (s *server) ModelSize(_ context.Context, r *wire.ModelSizeRequest) (*wire.ModelSizeResponse, error) {
	size, err := s.store.Size(r.GetModelId())
	if err != nil {
		return nil, err
	}
	return &wire.ModelSizeResponse{SizeInBytes: uint64(size)}, nil
}

// nameField is where the messages of all predictions have the model's name.
const nameField = 1

// RuntimeStatus is what a mesh asks when it starts. It knows of no models then, so there must be none.
func (s *server) RuntimeStatus(ctx context.Context, _ *wire.RuntimeStatusRequest) (*wire.RuntimeStatusResponse, error) {
	answer := &wire.RuntimeStatusResponse{Status: wire.RuntimeStatusResponse_STARTING}
	if err := s.store.Purge(ctx); err != nil {
		slog.WarnContext(ctx, "not ready for a mesh", "error", err)
		return answer, nil
	}
	answer.Status = wire.RuntimeStatusResponse_READY
	answer.CapacityInBytes = uint64(s.options.Capacity)
	answer.MaxLoadingConcurrency = uint32(s.options.Loading)
	answer.ModelLoadingTimeoutMs = uint32(s.options.LoadTimeout.Milliseconds())
	answer.DefaultModelSizeInBytes = uint64(s.options.DefaultSize)
	answer.RuntimeVersion = s.options.Version
	answer.MethodInfos = map[string]*wire.RuntimeStatusResponse_MethodInfo{}
	for _, method := range []string{
		pb.GRPCInferenceService_ModelInfer_FullMethodName,
		pb.GRPCInferenceService_ModelMetadata_FullMethodName,
		pb.GRPCInferenceService_ModelReady_FullMethodName,
	} {
		answer.MethodInfos[strings.TrimPrefix(method, "/")] = &wire.RuntimeStatusResponse_MethodInfo{IdInjectionPath: []uint32{nameField}}
	}
	return answer, nil
}
