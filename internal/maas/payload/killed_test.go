// SPDX-License-Identifier: Apache-2.0

package payload_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/maas/payload"
	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
)

// wire leads connections to a processor, until it is cut.
type wire struct {
	net.Listener
	mu   sync.Mutex
	open []*net.TCPConn
}

func (w *wire) lead(to func() string) {
	for {
		from, err := w.Accept()
		if err != nil {
			return
		}
		there, err := net.Dial("tcp", to())
		if err != nil {
			_ = from.Close()
			continue
		}
		w.mu.Lock()
		w.open = append(w.open, from.(*net.TCPConn), there.(*net.TCPConn))
		w.mu.Unlock()
		for _, pair := range [][2]net.Conn{{from, there}, {there, from}} {
			go func() { _, _ = io.Copy(pair[0], pair[1]) }()
		}
	}
}

// cut ends all connections, as the end of a process does: with a reset if something was not read.
func (w *wire) cut(reset bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		if reset {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
	}
	w.open = nil
}

// TestKilledLetsNothingThrough: whoever is not let in stays out also while the processor goes away in the middle.
func TestKilledLetsNothingThrough(t *testing.T) {
	for _, name := range []string{"closed", "reset", "stopped"} {
		t.Run(name, func(t *testing.T) {
			var passed, refused, failed atomic.Int64
			own := backend(t, func(http.ResponseWriter, *http.Request) { passed.Add(1) })
			var port atomic.Int64
			run := func() processor {
				p := startProcessor(t, enforcedConfig(), func(o *payload.Options) {
					o.World.DecideTimeout = time.Second
					o.World.Enforcer = decide(func(context.Context, enforcer.Request) (enforcer.Decision, error) {
						time.Sleep(5 * time.Millisecond) //nolint:forbidigo // what others wait for is in the middle when it is cut
						return enforcer.Decision{Status: http.StatusUnauthorized, Message: "no"}, nil
					})
				})
				port.Store(int64(p.port))
				return p
			}
			stage := run()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = listener.Close() })
			w := &wire{Listener: listener}
			go w.lead(func() string { return net.JoinHostPort("127.0.0.1", strconv.FormatInt(port.Load(), 10)) })
			front := processor{port: listener.Addr().(*net.TCPAddr).Port}
			url := gateway{stages: []processor{front}, external: own, own: own, body: "FULL_DUPLEX_STREAMED"}.start(t)
			ctx, end := context.WithTimeout(t.Context(), 3*time.Second)
			defer end()
			var asking sync.WaitGroup
			for range 12 {
				asking.Go(func() {
					for ctx.Err() == nil {
						request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"model":"llama"}`))
						request.Header.Set("X-Gateway-Model-Name", "llama") // by which a request that nobody has seen finds its way
						response, err := http.DefaultClient.Do(request)
						if err != nil {
							continue
						}
						_, _ = io.Copy(io.Discard, response.Body)
						_ = response.Body.Close()
						if response.StatusCode == http.StatusUnauthorized {
							refused.Add(1)
						} else {
							failed.Add(1)
						}
					}
				})
			}
			for ctx.Err() == nil {
				time.Sleep(20 * time.Millisecond) //nolint:forbidigo // often enough, and long enough for answers
				if name != "stopped" {
					w.cut(name == "reset")
					continue
				}
				stage.stop()
				w.cut(false)
				stage = run()
			}
			asking.Wait()
			t.Logf("%d refused, %d failed, %d went on", refused.Load(), failed.Load(), passed.Load())
			if passed.Load() > 0 || refused.Load() == 0 || failed.Load() == 0 {
				t.Errorf("%d requests went on that nobody has let through; %d were refused and %d failed", passed.Load(), refused.Load(), failed.Load())
			}
		})
	}
}
