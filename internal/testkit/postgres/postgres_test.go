// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"strings"
	"testing"

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
