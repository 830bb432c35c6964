// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/modelplane/modelplane/internal/testkit"
)

var shared struct {
	sync.Mutex
	server    *Server
	databases int
}

// Shared is the address of an empty database of a server that all tests of this binary have together, because making one takes
// longer than most of them. Whoever stops a server has one of their own. It needs testkit.Main, which ends it.
func Shared(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		shared.server = Start(&lasting{TB: t})
	}
	shared.databases++
	name := fmt.Sprintf("shared%d", shared.databases)
	shared.server.Database(t, name)
	return shared.server.URI(name)
}

// lasting is a test for what outlives it.
type lasting struct{ testing.TB }

func (l *lasting) Cleanup(do func()) { testkit.AtEnd(do) }

func (l *lasting) Context() context.Context { return context.Background() }

func (l *lasting) TempDir() string {
	dir, err := os.MkdirTemp("", "postgres-")
	if err != nil {
		l.Fatal(err)
	}
	testkit.AtEnd(func() { _ = os.RemoveAll(dir) })
	return dir
}
