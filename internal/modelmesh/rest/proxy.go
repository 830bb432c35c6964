// SPDX-License-Identifier: Apache-2.0

// Package rest gives models of a mesh to clients that speak HTTP: the open inference protocol v2 with its binary data, and
// answers that come piece by piece. It turns bodies into messages for the mesh in the same pod and back. It knows no model
// and keeps nothing between requests; what they take together is bounded.
package rest

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/modelplane/modelplane/internal/openinference"
	"github.com/modelplane/modelplane/internal/openinference/body"
	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/version"
)

// serverName is how the proxy introduces itself.
const serverName = "modelplane-mesh-rest"

// Proxy stands in front of a mesh.
type Proxy struct {
	mesh       pb.GRPCInferenceServiceClient
	connection *grpc.ClientConn
	budget     *openinference.Budget
	maxMessage int
	places     chan struct{} // for requests to models, one each
	// clientTimeout is how long a client may take to read a piece of its answer.
	clientTimeout time.Duration
	stopping      process.Check
	metrics       *metrics
}

// Handler answers requests.
func (p *Proxy) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2", p.metadata)
	mux.HandleFunc("GET /v2/health/live", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]bool{"live": true})
	})
	mux.HandleFunc("GET /v2/health/ready", p.ready)
	for _, path := range []string{"/v2/models/{model}", "/v2/models/{model}/versions/{version}"} {
		for _, one := range []struct {
			pattern, name string
			handler       http.HandlerFunc
		}{
			{"GET " + path, "metadata", p.modelMetadata},
			{"GET " + path + "/ready", "ready", p.modelReady},
			{"POST " + path + "/infer", "infer", p.infer},
			{"POST " + path + "/generate", "generate", func(w http.ResponseWriter, r *http.Request) { p.generate(w, r, false) }},
			{"POST " + path + "/generate_stream", "generate_stream", func(w http.ResponseWriter, r *http.Request) { p.generate(w, r, true) }},
		} {
			mux.HandleFunc(one.pattern, p.metrics.counted(one.name, p.placed(one.handler)))
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, &openinference.Error{Kind: openinference.NotFound, Message: r.Method + " " + r.URL.Path +
			" is nothing of the v2 protocol; POST /v2/models/NAME/infer asks a model"})
	})
	return mux
}

// placed refuses what there is no place for: answers take memory before anybody can count them.
func (p *Proxy) placed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case p.places <- struct{}{}:
			defer func() { <-p.places }()
			next(w, r)
		default:
			fail(w, &openinference.Error{Kind: openinference.Busy, Message: "there are " + strconv.Itoa(cap(p.places)) +
				" requests already; try again later"})
		}
	}
}

func (p *Proxy) metadata(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{
		"name": serverName, "version": version.Get().Version, "extensions": []string{"binary_tensor_data", "generate"},
	})
}

// connectTime is how long a question for readiness waits for a connection that is being made.
const connectTime = time.Second

// ready tells whether the mesh can be asked.
func (p *Proxy) ready(w http.ResponseWriter, r *http.Request) {
	if p.stopping(r) == nil && p.connected(r.Context()) {
		reply(w, http.StatusOK, map[string]bool{"ready": true})
		return
	}
	reply(w, http.StatusServiceUnavailable, map[string]bool{"ready": false})
}

func (p *Proxy) connected(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	for {
		state := p.connection.GetState()
		switch state {
		case connectivity.Ready:
			return true
		case connectivity.Idle:
			p.connection.Connect()
		case connectivity.Shutdown, connectivity.TransientFailure:
			return false
		}
		if !p.connection.WaitForStateChange(ctx, state) {
			return false
		}
	}
}

// Headers of HTTP that the mesh and the runtime get as they are, and the beginning of those that they get without it.
var passed = []string{"Authorization", "Traceparent", "Tracestate", "B3", "X-Request-Id"}

const passedPrefix = "Grpc-Metadata-"

// call is the context of a question to the mesh: its headers, its deadline and which model it is for. Some methods have no
// name of a model that the mesh would look for, so that it is always in a header as well.
func call(r *http.Request, model string) (context.Context, context.CancelFunc, error) {
	out := metadata.MD{}
	for name, values := range r.Header {
		if rest, ok := strings.CutPrefix(name, passedPrefix); ok {
			out.Append(rest, values...)
		} else if slices.Contains(passed, name) {
			out.Append(name, values...)
		}
	}
	if len(out.Get("mm-model-id"))+len(out.Get("mm-model-id-bin"))+len(out.Get("mm-vmodel-id"))+len(out.Get("mm-vmodel-id-bin")) == 0 {
		key := "mm-vmodel-id"
		if strings.ContainsFunc(model, func(c rune) bool { return c < ' ' || c > '~' }) {
			key += "-bin"
		}
		out.Set(key, model)
	}
	ctx, cancel := context.WithCancel(r.Context())
	if text := r.Header.Get("Grpc-Timeout"); text != "" {
		limit, err := timeout(text)
		if err != nil {
			cancel()
			return nil, nil, err
		}
		ctx, cancel = context.WithTimeout(r.Context(), limit)
	}
	return metadata.NewOutgoingContext(ctx, out), cancel, nil
}

var units = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// timeout reads up to eight digits and a unit, as gRPC writes them.
func timeout(text string) (time.Duration, error) {
	unit := units[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	if err != nil || unit == 0 || len(text) > 9 {
		return 0, openinference.Invalidf("the header Grpc-Timeout is no time; 500m is half a second")
	}
	each := int64(unit)
	return time.Duration(min(int64(n), 1<<62/each) * each), nil
}

type tensorMetadata struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

func describe(all []*pb.ModelMetadataResponse_TensorMetadata) []tensorMetadata {
	out := make([]tensorMetadata, len(all))
	for i, t := range all {
		out[i] = tensorMetadata{t.GetName(), t.GetDatatype(), append([]int64{}, t.GetShape()...)}
	}
	return out
}

func (p *Proxy) modelMetadata(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("model")
	ctx, cancel, err := call(r, name)
	if err != nil {
		fail(w, err)
		return
	}
	defer cancel()
	m, err := p.mesh.ModelMetadata(ctx, &pb.ModelMetadataRequest{Name: name, Version: r.PathValue("version")})
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, struct {
		Name     string           `json:"name"`
		Versions []string         `json:"versions"`
		Platform string           `json:"platform"`
		Inputs   []tensorMetadata `json:"inputs"`
		Outputs  []tensorMetadata `json:"outputs"`
	}{cmp.Or(m.GetName(), name), append([]string{}, m.GetVersions()...), m.GetPlatform(), describe(m.GetInputs()), describe(m.GetOutputs())})
}

// modelReady asks the runtime. One that does not know the question has the model if it can describe it.
func (p *Proxy) modelReady(w http.ResponseWriter, r *http.Request) {
	name, version := r.PathValue("model"), r.PathValue("version")
	ctx, cancel, err := call(r, name)
	if err != nil {
		fail(w, err)
		return
	}
	defer cancel()
	answer, err := p.mesh.ModelReady(ctx, &pb.ModelReadyRequest{Name: name, Version: version})
	ready := answer.GetReady()
	if status.Code(err) == codes.Unimplemented {
		_, err = p.mesh.ModelMetadata(ctx, &pb.ModelMetadataRequest{Name: name, Version: version})
		ready = err == nil
	}
	if err != nil {
		fail(w, err)
		return
	}
	code := http.StatusOK
	if !ready {
		code = http.StatusServiceUnavailable
	}
	reply(w, code, map[string]any{"name": name, "ready": ready})
}

// read takes the body within the limits.
func read(r *http.Request, share *openinference.Share) ([]byte, error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, openinference.Invalidf("Content-Encoding %q is not supported; send the body as it is", encoding)
	}
	return share.Read(r.Body, r.ContentLength)
}

// infer answers POST /v2/models/NAME/infer, piece by piece for a client that takes events.
func (p *Proxy) infer(w http.ResponseWriter, r *http.Request) {
	share := p.budget.Share()
	defer share.Release()
	text, err := read(r, share)
	if err != nil {
		fail(w, err)
		return
	}
	request, err := body.Decode(text, r.Header.Get(body.HeaderLength), share.Grow)
	if err == nil && len(request.Inputs) == 0 {
		err = openinference.Invalidf("the request has no inputs")
	}
	if err != nil {
		fail(w, err)
		return
	}
	name := r.PathValue("model")
	message := toMessage(request, name, r.PathValue("version"))
	if err := p.fits(message, share); err != nil {
		fail(w, err)
		return
	}
	ctx, cancel, err := call(r, name)
	if err != nil {
		fail(w, err)
		return
	}
	defer cancel()
	if wantsEvents(r) {
		p.stream(ctx, w, message, func(answer *body.Response) []byte {
			text, _ := answer.Encode(func(string) bool { return false }) // events are text
			return text
		})
		return
	}
	answer, err := p.mesh.ModelInfer(ctx, message)
	if err != nil {
		fail(w, err)
		return
	}
	p.answer(w, answer, request, name, share)
}

// fits refuses what the mesh would refuse, in words, and counts what the message takes.
func (p *Proxy) fits(message *pb.ModelInferRequest, share *openinference.Share) error {
	size := proto.Size(message)
	if size > p.maxMessage {
		return &openinference.Error{Kind: openinference.TooLarge, Message: "the request is a message of " + strconv.Itoa(size) +
			" bytes for the mesh, which takes " + strconv.Itoa(p.maxMessage) + "; send less at a time, or raise grpcMaxMessageSizeBytes"}
	}
	return share.Grow(2 * int64(size))
}

// answer writes what the model said.
func (p *Proxy) answer(w http.ResponseWriter, message *pb.ModelInferResponse, request *body.Request, name string, share *openinference.Share) {
	err := share.Grow(int64(proto.Size(message)))
	var answer *body.Response
	if err == nil {
		answer, err = fromMessage(message, name)
	}
	if err == nil {
		err = share.Grow(answer.Size())
	}
	if err != nil {
		fail(w, err)
		return
	}
	text, raws := answer.Encode(request.BinaryOutput)
	size := len(text)
	for _, raw := range raws {
		size += len(raw)
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	if len(raws) > 0 {
		header.Set("Content-Type", "application/octet-stream")
		header.Set(body.HeaderLength, strconv.Itoa(len(text)))
	}
	header.Set("Content-Length", strconv.Itoa(size))
	for _, part := range append([][]byte{text}, raws...) {
		if p.write(w, part) != nil {
			return // the client went away, or does not read
		}
	}
}

// piece is how much a client must read within the timeout.
const piece = 256 << 10

func (p *Proxy) write(w http.ResponseWriter, data []byte) error {
	control := http.NewResponseController(w)
	defer func() { _ = control.SetWriteDeadline(time.Now().Add(p.clientTimeout)) }() // for what is still in buffers
	for chunk := range slices.Chunk(data, piece) {
		// Where no deadline can be set, as in tests, nobody is slow.
		if err := control.SetWriteDeadline(time.Now().Add(p.clientTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if _, err := w.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}
