// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// wire passes messages through as they are on the wire.
type wire struct{}

func (wire) Name() string { return "proto" }

func (wire) Marshal(message any) ([]byte, error) {
	raw, ok := message.([]byte)
	if !ok {
		return nil, fmt.Errorf("%T is no message", message)
	}
	return raw, nil
}

func (wire) Unmarshal(data []byte, message any) error {
	raw, ok := message.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is no message", message)
	}
	*raw = slices.Clone(data)
	return nil
}

// Fields of the messages ModelInferRequest, ModelInferResponse and their tensors in the open inference protocol.
const (
	fieldModel, fieldInputs, fieldRawInputs, fieldRawOutputs = 1, 5, 7, 6
	fieldName, fieldType, fieldShape                         = 1, 2, 3
)

// inferRequest is the request of an example, for gRPC.
func (c cluster) inferRequest(example, model string) []byte {
	c.Helper()
	var request struct {
		Inputs []struct {
			Name, Datatype string
			Shape          []uint64
			Data           []float32
		}
	}
	data, err := os.ReadFile(filepath.Join(root, "examples/onnx", example, "request-v2.json"))
	if err := errors.Join(err, json.Unmarshal(data, &request)); err != nil || len(request.Inputs) != 1 {
		c.Fatalf("no request: %v", err)
	}
	in := request.Inputs[0]
	var tensor, raw []byte
	tensor = protowire.AppendString(protowire.AppendTag(tensor, fieldName, protowire.BytesType), in.Name)
	tensor = protowire.AppendString(protowire.AppendTag(tensor, fieldType, protowire.BytesType), in.Datatype)
	for _, size := range in.Shape {
		tensor = protowire.AppendVarint(protowire.AppendTag(tensor, fieldShape, protowire.VarintType), size)
	}
	for _, value := range in.Data {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(value))
	}
	message := protowire.AppendString(protowire.AppendTag(nil, fieldModel, protowire.BytesType), model)
	message = protowire.AppendBytes(protowire.AppendTag(message, fieldInputs, protowire.BytesType), tensor)
	return protowire.AppendBytes(protowire.AppendTag(message, fieldRawInputs, protowire.BytesType), raw)
}

// classesIn reads the first raw output of an answer, which has whole numbers.
func classesIn(message []byte) ([]int, error) {
	raw, err := rawOutput(message)
	if err != nil {
		return nil, err
	}
	var classes []int
	for ; len(raw) >= 8; raw = raw[8:] {
		classes = append(classes, int(binary.LittleEndian.Uint64(raw)))
	}
	return classes, nil
}

// rawOutput is the first one of an answer.
func rawOutput(message []byte) ([]byte, error) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		message = message[n:]
		if number != fieldRawOutputs || kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return nil, protowire.ParseError(n)
			}
			message = message[n:]
			continue
		}
		raw, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		return raw, nil
	}
	return nil, errors.New("there is no output")
}

// grpcAnswers asks the model over gRPC at its Service.
func (c cluster) grpcAnswers() {
	c.traffic()
	c.classesOverGRPC(c.clusterIP("both-predictor"), "iris", "both")
	web := target{url: "http://" + c.clusterIP("both-predictor") + "/v1/models/both:predict", body: c.irisQuestion(), from: c.flowers()}
	c.firstAnswer(web)
	const questions = 40
	if n := c.count(web, questions); n.answers["iris"] != questions {
		c.Errorf("over HTTP at the same Service: want %d answers; %v", questions, n)
	}
}

// classesOverGRPC wants the classes that the rows of an example belong to.
func (c cluster) classesOverGRPC(host, example, model string) {
	c.Helper()
	conn, err := grpc.NewClient(host+":8081",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(wire{})))
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	request, known := c.inferRequest(example, model), c.classes(example)
	c.eventually("the right classes over gRPC", func() error {
		ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
		defer cancel()
		var answer []byte
		if err := conn.Invoke(ctx, "/inference.GRPCInferenceService/ModelInfer", request, &answer); err != nil {
			return err
		}
		got, err := classesIn(answer)
		if err == nil && !slices.Equal(got, known) {
			err = fmt.Errorf("the model says %v, want %v", got, known)
		}
		return err
	})
}
