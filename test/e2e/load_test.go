// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// count is who gave how many answers, and what went wrong instead.
type count struct {
	answers  map[string]int
	failures []string
}

// String is short however much went wrong.
func (n count) String() string {
	return fmt.Sprintf("answers from %v, %d failures: %v", n.answers, len(n.failures), n.failures[:min(len(n.failures), 3)])
}

func (n count) total() int {
	sum := len(n.failures)
	for _, answers := range n.answers {
		sum += answers
	}
	return sum
}

// target is what is asked, and how an answer tells who gave it.
type target struct {
	url, host string // host: for a gateway
	body      []byte
	from      func(answer []byte) (string, error)
}

func (t target) ask(ctx context.Context, client *http.Client) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(t.body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	if t.host != "" {
		request.Host = t.host
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(answer))
	}
	return t.from(answer)
}

// load asks twenty times a second until it is ended. Every other question makes a connection of its own; the rest go
// through a few that are kept.
type load struct {
	target
	cluster
	clients []*http.Client
	end     context.CancelFunc
	ended   chan struct{}
	mu      sync.Mutex
	count   count
}

func (c cluster) startLoad(t target) *load {
	c.Helper()
	c.firstAnswer(t)
	ctx, end := context.WithCancel(c.Context())
	l := &load{target: t, cluster: c, end: end, ended: make(chan struct{}), count: count{answers: map[string]int{}}}
	for range 4 {
		l.clients = append(l.clients, fresh, &http.Client{Timeout: fresh.Timeout, Transport: &http.Transport{}})
	}
	go l.run(ctx)
	c.Cleanup(func() { end(); <-l.ended })
	return l
}

func (l *load) run(ctx context.Context) {
	defer close(l.ended)
	var asked sync.WaitGroup
	defer asked.Wait()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		client := l.clients[i%len(l.clients)]
		asked.Go(func() {
			// A question that was begun is ended: the answer counts.
			who, err := l.ask(context.WithoutCancel(ctx), client)
			l.note(who, err)
		})
	}
}

func (l *load) note(who string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.count.failures = append(l.count.failures, time.Now().Format("15:04:05.000 ")+err.Error())
		return
	}
	l.count.answers[who]++
}

// soFar is a copy of the count.
func (l *load) soFar() count {
	l.mu.Lock()
	defer l.mu.Unlock()
	return count{answers: maps.Clone(l.count.answers), failures: slices.Clone(l.count.failures)}
}

// stop ends the load.
func (l *load) stop() count {
	l.end()
	<-l.ended
	return l.soFar()
}

// nothingLost ends the load and fails the test when a single request failed.
func (l *load) nothingLost(during string) {
	l.Helper()
	n := l.stop()
	l.Logf("%s: %d requests, %d failed, answers from %v", during, n.total(), len(n.failures), n.answers)
	if n.total() == 0 {
		l.Errorf("%s: nothing was asked", during)
	}
	for i, failure := range n.failures {
		if i < 3 || i >= len(n.failures)-3 {
			l.Errorf("%s: a request failed: %s", during, failure)
		}
	}
}

// next waits for so many further answers of one.
func (l *load) next(who string, answers int) {
	l.Helper()
	start := l.soFar().answers[who]
	l.eventually(fmt.Sprintf("%d answers from %s", answers, who), func() error {
		if got := l.soFar(); got.answers[who] < start+answers {
			return fmt.Errorf("answers so far: %v, failures: %v", got.answers, got.failures)
		}
		return nil
	})
}

// firstAnswer waits for it, because a pod is ready a moment before its Service leads to it.
func (c cluster) firstAnswer(t target) {
	c.Helper()
	c.eventually("a first answer", func() error {
		_, err := t.ask(c.Context(), fresh)
		return err
	})
}

// count counts the answers to so many questions, some at the same time.
func (c cluster) count(t target, questions int) count {
	c.Helper()
	l := &load{count: count{answers: map[string]int{}}}
	var asking sync.WaitGroup
	const together = 8
	for i := range together {
		client := fresh
		if i%2 == 0 {
			client = &http.Client{Timeout: fresh.Timeout, Transport: &http.Transport{}}
		}
		asking.Go(func() {
			for range questions / together {
				l.note(t.ask(c.Context(), client))
			}
		})
	}
	asking.Wait()
	return l.count
}

// flowers tells the models apart: iris knows the flowers, and contrary says for each what it most likely is not.
func (c cluster) flowers() func([]byte) (string, error) {
	c.Helper()
	known := c.irisClasses()
	return func(answer []byte) (string, error) {
		var got struct{ Predictions []int }
		if err := json.Unmarshal(answer, &got); err != nil {
			return "", err
		}
		if slices.Equal(got.Predictions, known) {
			return "iris", nil
		}
		for i, class := range got.Predictions {
			if len(got.Predictions) != len(known) || class == known[i] {
				return "", errors.New("nobody answers so: " + string(answer))
			}
		}
		return "contrary", nil
	}
}
