// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/serve"
)

// row is an input of zeros: what the numbers are makes no difference to the time.
func row(specs []tensor.Spec) (*tensor.Tensor, error) {
	if len(specs) != 1 || specs[0].Type == tensor.Bytes {
		return nil, errors.New("a model with one input of numbers is needed")
	}
	t := &tensor.Tensor{Name: specs[0].Name, Type: specs[0].Type}
	for _, d := range specs[0].Shape {
		t.Shape = append(t.Shape, max(d, 1))
	}
	count, err := tensor.Count(t.Shape)
	t.Data = make([]byte, count*t.Type.Size())
	return t, err
}

// way is one manner of asking the server.
type way struct {
	name  string
	flags []string
	call  func(at serve.Addresses) caller
}

func ways(input *tensor.Tensor) []way {
	together := []string{"--max_batch_size=32", "--max_batch_delay=200us"}
	rest, rpc := restCall(input), rpcCall(input)
	return []way{
		{"REST, alone", nil, rest},
		{"REST, together", together, rest},
		{"gRPC, alone", nil, rpc},
		{"gRPC, together", together, rpc},
	}
}

// measureServer starts a server for one way and ends it again.
func measureServer(ctx context.Context, o *options, path string, w way) (result, error) {
	settings, err := serve.Parse(append([]string{"--model_name=m", "--model_dir=" + path, "--http_port=0", "--grpc_port=0", "--drain_delay=0s"}, w.flags...), io.Discard)
	if err != nil {
		return result{}, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	started, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() { ended <- serve.RunLoaded(ctx, settings, func(a serve.Addresses) { started <- a }) }()
	select {
	case err := <-ended:
		return result{}, err
	case at := <-started:
		r, err := measure(o, w.call(at))
		stop()
		return r, errors.Join(err, <-ended)
	}
}

// restCall sends binary data over a connection of each client's own.
func restCall(input *tensor.Tensor) func(serve.Addresses) caller {
	shape, _ := json.Marshal(input.Shape) // numbers always marshal
	head := fmt.Sprintf(`{"inputs":[{"name":%q,"datatype":%q,"shape":%s,"parameters":{"binary_data_size":%d}}]}`, input.Name, input.Type, shape, len(input.Raw()))
	body := append([]byte(head), input.Raw()...)
	return func(at serve.Addresses) caller {
		url := "http://" + at.HTTP.String() + "/v2/models/m/infer"
		return func(int) (func() error, func(), error) {
			transport := &http.Transport{MaxIdleConnsPerHost: 1}
			client := &http.Client{Transport: transport}
			return func() error { return post(client, url, body, len(head)) }, transport.CloseIdleConnections, nil
		}
	}
}

func post(client *http.Client, url string, body []byte, head int) error {
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Inference-Header-Content-Length", strconv.Itoa(head))
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(`"shape":[1`)) {
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return nil
}

func rpcCall(input *tensor.Tensor) func(serve.Addresses) caller {
	return func(at serve.Addresses) caller {
		return func(int) (func() error, func(), error) {
			conn, err := grpc.NewClient(at.GRPC.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				return nil, nil, err
			}
			client := pb.NewGRPCInferenceServiceClient(conn)
			request := &pb.ModelInferRequest{
				ModelName:        "m",
				Inputs:           []*pb.ModelInferRequest_InferInputTensor{{Name: input.Name, Datatype: string(input.Type), Shape: input.Shape}},
				RawInputContents: [][]byte{input.Raw()},
			}
			return func() error {
				answer, err := client.ModelInfer(context.Background(), request)
				if err == nil && (len(answer.Outputs) == 0 || answer.Outputs[0].Shape[0] != 1) {
					err = errors.New("the answer is not for one row")
				}
				return err
			}, func() { _ = conn.Close() }, nil
		}
	}
}
