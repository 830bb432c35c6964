// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/guard"
	"github.com/modelplane/modelplane/internal/testkit/postgres"
)

// asVictim makes the test binary one that is killed.
const asVictim = "POSTGRES_VICTIM"

// TestKilled: a server ends with all its processes when the test that uses it is killed, also with one that is busy.
func TestKilled(t *testing.T) {
	if os.Getenv(asVictim) != "" {
		s := postgres.Start(t)
		go s.Query(t, "postgres", "do $$ begin loop end loop; end $$")
		testkit.Eventually(t, time.Minute, "the endless statement", func() error {
			if got := s.Query(t, "postgres", "select count(*) from pg_stat_activity where query like 'do $$%'"); strings.TrimSpace(got) != "1" {
				return fmt.Errorf("%s of them", got)
			}
			return nil
		})
		pids := s.Query(t, "postgres", "select pid from pg_stat_activity where pid <> pg_backend_pid()")
		fmt.Fprintln(os.Stdout, "data", strings.TrimSpace(s.Query(t, "postgres", "show data_directory")))
		fmt.Fprintln(os.Stdout, "pids", strings.Join(strings.Fields(pids), " "))
		<-t.Context().Done() // the end comes from outside
		return
	}
	if guard.Records() == "" {
		t.Skip("there is no /proc to look at")
	}
	victim := exec.Command(os.Args[0], "-test.run=^TestKilled$", "-test.v")
	victim.Env = append(os.Environ(), asVictim+"=yes")
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var pids, said []string
	for lines := bufio.NewScanner(out); len(pids) == 0 && lines.Scan(); {
		said = append(said, lines.Text())
		if strings.Contains(lines.Text(), "--- SKIP") {
			t.Skip(strings.Join(said, "\n")) // there is no PostgreSQL here
		}
		if data, found := strings.CutPrefix(lines.Text(), "data "); found {
			// Who is killed leaves files behind.
			t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(filepath.Dir(data))) })
		}
		if text, found := strings.CutPrefix(lines.Text(), "pids "); found {
			pids = strings.Fields(text)
		}
	}
	records := recordsOf(t, victim.Process.Pid)
	if len(pids) < 2 || len(records) != 1 {
		t.Errorf("the server has the processes %v and the records %v\n%s", pids, records, strings.Join(said, "\n"))
	}
	pids = append(pids, records...) // the first process is not among those that it knows
	if err := victim.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = victim.Wait()
	testkit.Eventually(t, 10*time.Second, "the server to be gone", func() error {
		for _, pid := range pids {
			if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
				return fmt.Errorf("still there: %s", stat)
			}
		}
		if left := recordsOf(t, victim.Process.Pid); len(left) > 0 {
			return fmt.Errorf("still on record: %v", left)
		}
		return nil
	})
}

// recordsOf are the processes on record as those of a test process.
func recordsOf(t *testing.T, owner int) (pids []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(guard.Records(), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		// One that is gone meanwhile is nobody's.
		line, _ := os.ReadFile(file)
		if fields := strings.Fields(string(line)); len(fields) == 4 && fields[2] == strconv.Itoa(owner) {
			pids = append(pids, filepath.Base(file))
		}
	}
	return pids
}
