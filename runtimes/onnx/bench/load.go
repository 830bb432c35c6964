// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// result is what a measurement found.
type result struct {
	rate     float64 // requests per second
	p50, p99 time.Duration
}

// caller makes the call of one client and what to do after the last.
type caller func(client int) (call func() error, done func(), err error)

// measure lets each client call again and again until the time is over or the requests are spent. A tenth of the time
// before it is for warming up.
func measure(o *options, make1 caller) (result, error) {
	calls := make([]func() error, o.clients)
	var ends []func()
	defer func() {
		for _, end := range ends {
			end()
		}
	}()
	for i := range calls {
		call, done, err := make1(i)
		if err != nil {
			return result{}, err
		}
		calls[i], ends = call, append(ends, done)
	}
	if _, _, err := burst(calls, o.duration/10, o.requests); err != nil {
		return result{}, err
	}
	times, took, err := burst(calls, o.duration, o.requests)
	if err != nil {
		return result{}, err
	}
	slices.Sort(times)
	return result{rate: float64(len(times)) / took.Seconds(), p50: times[len(times)/2], p99: times[len(times)*99/100]}, nil
}

func burst(calls []func() error, duration time.Duration, requests int64) ([]time.Duration, time.Duration, error) {
	var left atomic.Int64
	left.Store(requests)
	var mu sync.Mutex
	var all []time.Duration
	var failures error
	var clients sync.WaitGroup
	began := time.Now()
	for _, call := range calls {
		clients.Go(func() {
			var own []time.Duration
			var err error
			for err == nil && time.Since(began) < duration && left.Add(-1) >= 0 {
				at := time.Now()
				err = call()
				own = append(own, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
			failures = errors.Join(failures, err)
		})
	}
	clients.Wait()
	if failures == nil && len(all) == 0 {
		failures = errors.New("there was not time for one request")
	}
	return all, time.Since(began), failures
}
