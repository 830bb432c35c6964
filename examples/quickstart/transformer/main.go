// SPDX-License-Identifier: Apache-2.0

// Command transformer stands in front of the iris model. It takes flowers as people measure
// them, asks the predictor for their classes, and answers with their names.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// flower is what people send.
type flower struct{ Sepal, Petal [2]float64 }

var species = []string{"setosa", "versicolor", "virginica"}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "transformer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("transformer", flag.ContinueOnError)
	model := flags.String("model_name", "", "name of the model")
	predictor := flags.String("predictor_host", "", "where the model is served")
	port := flags.Int("http_port", 8080, "port to listen on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	path := "/v1/models/" + *model + ":predict"
	t := &transformer{url: "http://" + *predictor + path, client: &http.Client{Timeout: 10 * time.Second}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("POST "+path, t)
	server := &http.Server{Addr: fmt.Sprintf(":%d", *port), Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.Background()) })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type transformer struct {
	url    string
	client *http.Client
}

func (t *transformer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var question struct{ Flowers []flower }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&question); err != nil {
		http.Error(w, "no flowers: "+err.Error(), http.StatusBadRequest)
		return
	}
	names, err := t.names(r.Context(), question.Flowers)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string][]string{"names": names})
}

// names asks the predictor.
func (t *transformer) names(ctx context.Context, flowers []flower) ([]string, error) {
	instances := make([][4]float64, len(flowers))
	for i, f := range flowers {
		instances[i] = [4]float64{f.Sepal[0], f.Sepal[1], f.Petal[0], f.Petal[1]}
	}
	body, err := json.Marshal(map[string]any{"instances": instances})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := t.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		told, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return nil, fmt.Errorf("the predictor says %s: %s", response.Status, told)
	}
	var answer struct{ Predictions []int }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	names := make([]string, len(answer.Predictions))
	for i, class := range answer.Predictions {
		if class < 0 || class >= len(species) {
			return nil, fmt.Errorf("the predictor knows a class %d", class)
		}
		names[i] = species[class]
	}
	return names, nil
}
