// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // a driver of database/sql
)

//go:embed postgres/*.sql sqlite/*.sql
var migrations embed.FS

// Open connects and brings the tables up to date. Its errors have no password in them.
func Open(ctx context.Context, c Config) (*Store, error) {
	s := &Store{within: cmp.Or(c.Within, 5*time.Second), log: cmp.Or(c.Log, slog.Default()), sinks: map[Sink]bool{}}
	var err error
	switch scheme, rest, _ := strings.Cut(c.URL, "://"); scheme {
	case "postgres", "postgresql":
		err = s.openPostgres(c)
	case "sqlite":
		err = s.openSQLite(rest)
	default:
		err = errors.New("the address of the database must begin with postgres:// or postgresql://, or with sqlite:// for a file; it is not shown because a password may be in it")
	}
	if err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the database: %w", err), s.Close())
	}
	maxOpen := cmp.Or(c.MaxOpen, 25) // of those who ask; to prepare takes two, of which one holds others off
	s.db.SetMaxOpenConns(maxOpen)
	s.db.SetMaxIdleConns(cmp.Or(c.MaxIdle, maxOpen)) // fewer would be closed and opened again in every burst
	s.db.SetConnMaxLifetime(cmp.Or(c.Lifetime, 5*time.Minute))
	return s, nil
}

func (s *Store) openPostgres(c Config) error {
	config, err := pgx.ParseConfig(c.URL)
	if err != nil {
		if path, ok := errors.AsType[*os.PathError](err); ok {
			return fmt.Errorf("read the certificates for PostgreSQL: %w", path)
		}
		return errors.New("the address of the database cannot be read; it is not shown because a password may be in it")
	}
	config.RuntimeParams["application_name"] = "modelplane-maas-api"
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, s.within)
	s.dialect, s.db = postgres, stdlib.OpenDB(*config)
	s.listen = func(ctx context.Context) (listener, error) { return listenPostgres(ctx, config) }
	return nil
}

func (s *Store) openSQLite(path string) error {
	if path == "" {
		return errors.New("the file of the SQLite database is not named; write sqlite:// and its path")
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return err
	}
	settings := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(10000)"}, "_txlock": {"immediate"}}
	s.dialect, s.lock = sqlite, lock
	s.db, err = sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+settings.Encode())
	return err
}

// lockFile keeps a second process away, which would not hear of what this one revokes.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the SQLite database: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%s is held by another process; SQLite is for one replica, use PostgreSQL for several", path)
	}
	return file, nil
}

// prepare makes or changes what is missing, one replica at a time.
func (s *Store) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	unlock, err := s.alone(ctx)
	if err != nil {
		return s.outcome(err)
	}
	defer unlock()
	if err := s.checkClean(ctx); err != nil {
		return err
	}
	dir, dialect := "sqlite", goose.DialectSQLite3
	if s.postgres {
		dir, dialect = "postgres", goose.DialectPostgres
	}
	files, err := fs.Sub(migrations, dir)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(dialect, s.db, files, goose.WithTableName("maas_api_migrations"), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	done, err := provider.Up(ctx)
	for _, m := range done {
		s.log.Info("The database was changed", "migration", m.Source.Path, "took", m.Duration.String())
	}
	return s.outcome(err)
}

// prepareTime is enough to build indexes over millions of keys.
const prepareTime = 10 * time.Minute

// alone keeps other replicas from changing the same tables at the same time.
func (s *Store) alone(ctx context.Context) (unlock func(), err error) {
	if !s.postgres {
		return func() {}, nil // its file is locked
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock(7239810572)"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock(7239810572)") // it ends with the connection at the latest
		_ = conn.Close()
	}, nil
}

// ErrDirty is a database of which a migration of the known server ended half-way.
var ErrDirty = errors.New("a migration of the known server ended half-way (schema_migrations is dirty); restore the database or finish that migration, then set dirty to false")

func (s *Store) checkClean(ctx context.Context) error {
	if !s.postgres {
		return nil
	}
	var there sql.NullString
	if err := s.db.QueryRowContext(ctx, "SELECT to_regclass('schema_migrations')::text").Scan(&there); err != nil {
		return s.outcome(err)
	}
	if !there.Valid {
		return nil
	}
	var dirty bool
	if err := s.db.QueryRowContext(ctx, "SELECT coalesce(bool_or(dirty), false) FROM schema_migrations").Scan(&dirty); err != nil {
		return s.outcome(err)
	}
	if dirty {
		return ErrDirty
	}
	return nil
}
