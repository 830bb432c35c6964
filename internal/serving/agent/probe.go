// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// spec is a probe as Kubernetes has it.
type spec struct {
	HTTPGet *struct {
		Path    string `json:"path"`
		Port    port   `json:"port"`
		Scheme  string `json:"scheme"`
		Headers []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"httpHeaders"`
	} `json:"httpGet"`
	TCPSocket *struct {
		Port port `json:"port"`
	} `json:"tcpSocket"`
	GRPC *struct {
		Port    int    `json:"port"`
		Service string `json:"service"`
	} `json:"grpc"`
	Exec *json.RawMessage `json:"exec"`

	TimeoutSeconds   int `json:"timeoutSeconds"`
	PeriodSeconds    int `json:"periodSeconds"`
	SuccessThreshold int `json:"successThreshold"`
}

// port is a number, or a name that only the pod knows: 0.
type port int

func (p *port) UnmarshalJSON(raw []byte) error {
	text := strings.Trim(string(raw), `"`)
	n, err := strconv.Atoi(text)
	if err != nil && !strings.HasPrefix(string(raw), `"`) {
		return errors.New("a port is neither a number nor a name")
	}
	*p = port(n)
	return nil
}

// How a probe without a period is tried: often, for a while.
const (
	eagerEvery = 50 * time.Millisecond
	eagerTry   = 100 * time.Millisecond
	eagerFor   = 10 * time.Second
	// longestTry is for probes that say nothing.
	longestTry = time.Minute
)

// prober tells whether the model server is ready. Whoever asks while it looks gets the same answer.
type prober struct {
	specs []spec
	// named is the port that a name stands for.
	named  int
	tryH2C bool

	mu  sync.Mutex
	now *look
}

// look is one look at the server.
type look struct {
	done chan struct{}
	err  error
}

// newProber reads what the pod says. Without a probe the server is ready when it listens; one that is empty is always ready.
func newProber(text string, given, several, tryH2C bool, component int) (*prober, error) {
	p := &prober{named: component, tryH2C: tryH2C}
	if !given {
		one := spec{TimeoutSeconds: 1, PeriodSeconds: 10}
		one.TCPSocket = &struct {
			Port port `json:"port"`
		}{port(component)}
		p.specs = []spec{one}
		return p, nil
	}
	if strings.TrimSpace(text) == "" {
		return p, nil
	}
	into := any(&p.specs)
	if !several {
		p.specs = make([]spec, 1)
		into = &p.specs[0]
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return nil, fmt.Errorf("SERVING_READINESS_PROBE is no probe of a container: %w", err)
	}
	return p, nil
}

// ready looks, or waits for who is looking.
func (p *prober) ready(ctx context.Context) error {
	p.mu.Lock()
	mine := p.now
	if mine == nil {
		mine = &look{done: make(chan struct{})}
		p.now = mine
		go func() {
			mine.err = p.all()
			p.mu.Lock()
			p.now = nil
			p.mu.Unlock()
			close(mine.done)
		}()
	}
	p.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *prober) all() error {
	for i := range p.specs {
		if err := p.one(&p.specs[i]); err != nil {
			return err
		}
	}
	return nil
}

// one probes once, or, without a period, until the server is ready.
func (p *prober) one(s *spec) error {
	if s.PeriodSeconds > 0 {
		limit := time.Duration(s.TimeoutSeconds) * time.Second
		if limit <= 0 {
			limit = longestTry
		}
		return p.try(s, limit)
	}
	ticker := time.NewTicker(eagerEvery)
	defer ticker.Stop()
	good := 0
	for began := time.Now(); ; <-ticker.C {
		err := p.try(s, eagerTry)
		if err != nil {
			good = 0
		} else if good++; good >= max(s.SuccessThreshold, 1) {
			return nil
		}
		if time.Since(began) > eagerFor {
			return errors.Join(err, errors.New("the server was not ready for long enough"))
		}
	}
}

func (p *prober) try(s *spec, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	switch {
	case s.HTTPGet != nil:
		return p.get(ctx, s)
	case s.TCPSocket != nil:
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", p.at(s.TCPSocket.Port))
		if err == nil {
			_ = connection.Close()
		}
		return err
	case s.GRPC != nil:
		return p.call(ctx, s.GRPC.Port, s.GRPC.Service)
	case s.Exec != nil:
		return errors.New("a command cannot be run in another container")
	}
	return nil
}

func (p *prober) at(of port) string {
	if of == 0 {
		of = port(p.named)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(of)))
}

// get asks over HTTP; with HTTP/2 first, where it is to be found out what the server speaks.
func (p *prober) get(ctx context.Context, s *spec) error {
	protocols := []bool{false}
	if p.tryH2C {
		protocols = []bool{true, false}
	}
	var err error
	for _, h2c := range protocols {
		if err = p.getBy(ctx, s, h2c); err == nil {
			return nil
		}
	}
	return err
}

func (p *prober) getBy(ctx context.Context, s *spec, h2c bool) error {
	g := s.HTTPGet
	scheme := "http"
	if strings.EqualFold(g.Scheme, "https") {
		scheme = "https"
	}
	path, query, _ := strings.Cut(g.Path, "?")
	u := &url.URL{Scheme: scheme, Host: p.at(g.Port), Path: "/" + strings.TrimPrefix(path, "/"), RawQuery: query}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kube-probe/modelplane")
	for _, h := range g.Headers {
		if strings.EqualFold(h.Name, "host") {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	// A certificate is not looked at, as the kubelet does not look at it.
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}
	if h2c {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("the server answers with status %d", answer.StatusCode)
	}
	return nil
}

func (p *prober) call(ctx context.Context, number int, service string) error {
	connection, err := grpc.NewClient(p.at(port(number)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close() //nolint:errcheck // nothing is sent any more
	answer, err := healthpb.NewHealthClient(connection).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		return err
	}
	if answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("the server says that it is %s", answer.GetStatus())
	}
	return nil
}
