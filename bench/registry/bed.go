// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // a driver of database/sql

	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
	"github.com/modelplane/modelplane/internal/testkit/mariadb"
	"github.com/modelplane/modelplane/internal/testkit/postgres"
)

// bed is a database with a way to it that counts.
type bed struct {
	kind string
	// dsn for a server that comes directly, and counted for one whose statements are counted.
	dsn, counted string
	db           *sql.DB
	wire         *wire
	maria        *mariadb.Server
}

const database = "registry"

func newBed(t testing.TB, kind string) *bed {
	t.Helper()
	b := &bed{kind: kind}
	driver := "pgx"
	if kind == "mysql" {
		driver = "mysql"
		b.maria = mariadb.Start(t)
		b.maria.Database(t, database)
		own := net.JoinHostPort(b.maria.Host, strconv.Itoa(b.maria.Port))
		b.wire = listen(t, own, mysqlProtocol)
		b.dsn = b.maria.DSN(database)
		b.counted = strings.Replace(b.dsn, own, b.wire.address, 1)
	} else {
		pg := postgres.Start(t)
		pg.Database(t, database)
		own := net.JoinHostPort(pg.Host, strconv.Itoa(pg.Port))
		b.wire = listen(t, own, postgresProtocol)
		b.dsn = pg.URI(database) + "?sslmode=disable"
		b.counted = strings.Replace(b.dsn, own, b.wire.address, 1)
	}
	var err error
	if b.db, err = sql.Open(driver, b.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.db.Close() })
	return b
}

// process is a server that is measured, with what it consists of.
type process struct {
	url      string
	programs []*testkit.Program
}

// build makes our binary as it is in the image.
func build(t testing.TB) string {
	t.Helper()
	root, err := checkout.Dir()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "modelplane")
	command := exec.CommandContext(t.Context(), "go", "-C", root, "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./cmd/modelplane")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	return binary
}

// ours starts our server on a database. The address, which has a password, comes as a variable.
func ours(t testing.TB, binary, kind, dsn string) *process {
	t.Helper()
	port := strconv.Itoa(testkit.FreePort(t))
	cmd := exec.Command(binary, "registry", "--hostname=127.0.0.1", "--port="+port, "--log-level=warn", "--embedmd-database-type="+kind)
	cmd.Env = append(os.Environ(), "MR_EMBEDMD_DATABASE_DSN="+dsn)
	p := &process{url: "http://127.0.0.1:" + port, programs: []*testkit.Program{testkit.RunProgram(t, "registry", cmd)}}
	testkit.Eventually(t, time.Minute, "our registry to answer", func() error { return ready(t.Context(), p.url) })
	return p
}

func ready(ctx context.Context, address string) error {
	_, err := newClient(address, 1).call(ctx, http.MethodGet, "/registered_models?"+url.Values{"pageSize": {"1"}}.Encode(), nil, http.StatusOK)
	return err
}

// peakMiB is the most memory that the processes of a server had.
func (p *process) peakMiB() (float64, error) {
	sum := 0.0
	for _, program := range p.programs {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(program.PID()), "status"))
		if err != nil {
			return 0, err
		}
		_, rest, found := strings.Cut(string(status), "VmHWM:")
		fields := strings.Fields(rest)
		if !found || len(fields) == 0 {
			return 0, fmt.Errorf("%s tells nothing of its memory", program.Name)
		}
		kib, err := strconv.Atoi(fields[0])
		if err != nil {
			return 0, err
		}
		sum += float64(kib) / 1024
	}
	return sum, nil
}

func split(t testing.TB, address string) (string, int) {
	t.Helper()
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}
