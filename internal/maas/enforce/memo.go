// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// memo remembers answers about credentials for a moment. Of several who ask the same at once, one asks for all. It keeps a digest
// of what is asked about, and not the credential.
type memo struct {
	size int
	now  func() time.Time

	asking singleflight.Group
	mu     sync.Mutex
	known  map[[sha256.Size]byte]answer
}

type answer struct {
	who   Identity
	err   error
	until time.Time
}

const (
	// memoSize is how many answers are remembered.
	memoSize = 20_000
	// askTime is how long a question may take that nobody waits for any more.
	askTime = 5 * time.Second
)

func newMemo() *memo {
	return &memo{size: memoSize, now: time.Now, known: map[[sha256.Size]byte]answer{}}
}

// get answers from memory, or asks. Only answers are remembered, and no failures: believe is zero for those.
func (m *memo) get(ctx context.Context, credential string, ask func(context.Context) (who Identity, believe time.Duration, err error)) (Identity, error) {
	key := sha256.Sum256([]byte(credential))
	m.mu.Lock()
	a, ok := m.known[key]
	m.mu.Unlock()
	if ok && m.now().Before(a.until) {
		return a.who, a.err
	}
	// The one who asks may go away before the others: the question goes on without them. What is believed is believed from
	// when it was asked, because it may have changed since.
	done := m.asking.DoChan(string(key[:]), func() (any, error) {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		asked := m.now()
		who, believe, err := ask(limited)
		a := answer{who, err, asked.Add(believe)}
		if believe > 0 {
			m.keep(key, a)
		}
		return a, nil
	})
	select {
	case <-ctx.Done():
		return Identity{}, ctx.Err()
	case r := <-done:
		a, _ := r.Val.(answer)
		return a.who, a.err
	}
}

// keep makes room by whatever comes first: who is forgotten is asked for again.
func (m *memo) keep(key [sha256.Size]byte, a answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for old := range m.known {
		if len(m.known) < m.size {
			break
		}
		delete(m.known, old)
	}
	m.known[key] = a
}
