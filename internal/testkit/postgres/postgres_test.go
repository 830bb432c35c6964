// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/testkit/postgres"
)

func TestAServerOfOnesOwn(t *testing.T) {
	s := postgres.Start(t)
	s.Database(t, "one")
	s.Query(t, "one", "create table numbers (n int)")
	s.Query(t, "one", "insert into numbers values (4), (2)")
	if got := strings.Fields(s.Query(t, "one", "select n from numbers order by n")); len(got) != 2 || got[0] != "2" {
		t.Errorf("got %v", got)
	}
}

func TestAServerForTLSAlone(t *testing.T) {
	pair, err := certs.NewPair(time.Now(), "test", []string{"127.0.0.1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := postgres.StartTLS(t, "127.0.0.1", pair.Certificate, pair.Key)
	if got := strings.TrimSpace(s.Query(t, "postgres", "select ssl from pg_stat_ssl where pid = pg_backend_pid()")); got != "t" {
		t.Errorf("over TLS: %q", got)
	}
}
