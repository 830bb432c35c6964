// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// plan is what is measured.
type plan struct {
	clients, size int
	time, think   time.Duration
	binary        string
}

// ways are graphs whose steps ask the service at STEP.
var ways = []struct{ name, root string }{
	{"direct", ""},
	{"Sequence of 1", `{"routerType":"Sequence","steps":[{"serviceUrl":"STEP"}]}`},
	{"Sequence of 3", `{"routerType":"Sequence","steps":[{"serviceUrl":"STEP"},{"serviceUrl":"STEP","data":"$response"},{"serviceUrl":"STEP","data":"$response"}]}`},
	{"Switch", `{"routerType":"Switch","steps":[{"serviceUrl":"STEP","condition":"instances.#(id==2)"},{"serviceUrl":"STEP","condition":"instances.#(id==1)"}]}`},
	{"Splitter", `{"routerType":"Splitter","steps":[{"serviceUrl":"STEP","weight":50},{"serviceUrl":"STEP","weight":50}]}`},
	{"Ensemble of 3", `{"routerType":"Ensemble","steps":[{"serviceUrl":"STEP"},{"serviceUrl":"STEP"},{"serviceUrl":"STEP"}]}`},
}

// figures are of one way.
type figures struct {
	Way      string        `json:"way"`
	Requests int           `json:"requests"`
	Failed   int           `json:"failed"`
	PerSec   float64       `json:"requestsPerSecond"`
	P50      time.Duration `json:"p50"`
	P99      time.Duration `json:"p99"`
	PeakRSS  int64         `json:"peakRSS"` // of the router
}

// body is a request or a reply of about a size.
func body(size int) []byte {
	return []byte(`{"instances":[{"id":1,"x":"` + strings.Repeat("a", max(size-30, 0)) + `"}]}`)
}

func (p plan) measure(ctx context.Context) (*report, error) {
	reply := body(p.size)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if p.think > 0 {
			select {
			case <-req.Context().Done():
			case <-time.After(p.think):
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(reply)
	}))
	defer service.Close()
	out := &report{Clients: p.clients, Size: p.size, Think: p.think}
	for _, way := range ways {
		f, err := p.one(ctx, way.root, service.URL)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		f.Way = way.name
		out.Ways = append(out.Ways, f)
	}
	return out, nil
}

// one measures one way: the service itself, or a router in front of it.
func (p plan) one(ctx context.Context, root, service string) (figures, error) {
	if root == "" {
		return p.load(ctx, service)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return figures{}, err
	}
	address := listener.Addr().String()
	_ = listener.Close() // the router opens it again
	graph := `{"nodes":{"root":` + strings.ReplaceAll(root, "STEP", service) + `}}`
	command := exec.CommandContext(ctx, p.binary, "router", "--graph-json", graph, "--bind-address", address, "--metrics-bind-address=0",
		"--shutdown-delay=0s", "--log-level=warn")
	command.Stderr = os.Stderr
	if err := guard.Start(command); err != nil {
		return figures{}, err
	}
	f, err := p.loadWhenReady(ctx, "http://"+address)
	err = errors.Join(err, command.Process.Signal(syscall.SIGTERM), guard.Wait(command))
	if usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage); ok {
		f.PeakRSS = usage.Maxrss << 10
	}
	return f, err
}

func (p plan) loadWhenReady(ctx context.Context, url string) (figures, error) {
	deadline := time.Now().Add(30 * time.Second)
	for {
		response, err := http.Get(url + "/readyz")
		if err == nil {
			_ = response.Body.Close()
			return p.load(ctx, url)
		}
		if time.Now().After(deadline) {
			return figures{}, err
		}
	}
}

// load asks for a while. Each client asks again when it has its answer.
func (p plan) load(ctx context.Context, url string) (figures, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: p.clients}}
	defer client.CloseIdleConnections()
	request := body(p.size)
	if err := ask(ctx, client, url, request); err != nil { // one that does not count
		return figures{}, err
	}
	took, failed := make([][]time.Duration, p.clients), make([]int, p.clients)
	began := time.Now()
	var all sync.WaitGroup
	for i := range p.clients {
		all.Go(func() {
			for time.Since(began) < p.time && ctx.Err() == nil {
				start := time.Now()
				if err := ask(ctx, client, url, request); err != nil {
					failed[i]++
				}
				took[i] = append(took[i], time.Since(start))
			}
		})
	}
	all.Wait()
	seconds := time.Since(began).Seconds()
	every := slices.Concat(took...)
	if len(every) == 0 {
		return figures{}, ctx.Err()
	}
	slices.Sort(every)
	f := figures{Requests: len(every), PerSec: float64(len(every)) / seconds, P50: every[len(every)/2], P99: every[len(every)*99/100]}
	for _, n := range failed {
		f.Failed += n
	}
	return f, nil
}

func ask(ctx context.Context, client *http.Client, url string, request []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(request))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	response, err := client.Do(req)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}
