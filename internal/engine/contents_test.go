// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// slowSecrets answers for one Secret only when it is told to.
type slowSecrets struct {
	client.Reader
	slow    string
	asked   chan struct{}
	release chan struct{}
	reads   atomic.Int32
	size    int
}

func (s *slowSecrets) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	s.reads.Add(1)
	if key.Name == s.slow {
		s.asked <- struct{}{}
		select {
		case <-s.release:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	secret := obj.(*corev1.Secret)
	secret.Name, secret.Namespace, secret.ResourceVersion = key.Name, key.Namespace, "1"
	secret.Data = map[string][]byte{"data": make([]byte, s.size)}
	return nil
}

var secretKind = corev1.SchemeGroupVersion.WithKind("Secret")

func readSecret(ctx context.Context, c *contents, live client.Reader, name string) error {
	return c.read(ctx, live, secretKind, client.ObjectKey{Namespace: "n", Name: name}, "1", &corev1.Secret{})
}

// TestSlowContentBlocksNoOther: while one Secret is being read, another is read; many who want the same one read it once,
// and one who gives up does not keep the others from it.
func TestSlowContentBlocksNoOther(t *testing.T) {
	live := &slowSecrets{slow: "slow", asked: make(chan struct{}, 10), release: make(chan struct{})}
	c := newContents()
	hasty, giveUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- readSecret(hasty, c, live, "slow") }()
	<-live.asked
	if err := readSecret(t.Context(), c, live, "quick"); err != nil {
		t.Fatal(err)
	}
	others := make(chan error, 3)
	for range 3 {
		go func() { others <- readSecret(t.Context(), c, live, "slow") }()
	}
	giveUp()
	if err := <-first; err == nil {
		t.Error("who gave up got an answer")
	}
	close(live.release)
	for range 3 {
		if err := <-others; err != nil {
			t.Error(err)
		}
	}
	if n := live.reads.Load(); n != 2 {
		t.Errorf("%d reads of two Secrets", n)
	}
}

// TestContentsAreBounded: by number and by size.
func TestContentsAreBounded(t *testing.T) {
	for _, size := range []int{1, 1 << 20, contentsSize + 1} {
		c, live := newContents(), &slowSecrets{size: size}
		for i := range min(2*contentsKept, 2*contentsSize/size+2) {
			if err := readSecret(t.Context(), c, live, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if c.used.Len() > contentsKept || c.size > contentsSize || c.used.Len() != len(c.by) {
			t.Errorf("of %d bytes each %d are kept, %d bytes", size, c.used.Len(), c.size)
		}
		if size == 1 && c.used.Len() != contentsKept {
			t.Errorf("only %d small ones are kept", c.used.Len())
		}
	}
}
