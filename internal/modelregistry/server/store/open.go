// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // a driver of database/sql

	"github.com/modelplane/modelplane/internal/modelregistry/server/entity"
)

// Config says where the database is.
type Config struct {
	// Type is postgres, mysql or sqlite.
	Type string
	// DSN is an address or a list of key=value for PostgreSQL, the form of Go's driver for MySQL, and the path of a file for
	// SQLite.
	DSN string
	// MySQLPassword is used where the DSN has none, or has it in a form that could be misread.
	MySQLPassword string
	// Certificate and Key of the client, and who may have signed the server's: a file, or a directory of files.
	Certificate, Key, Roots string
	// Ciphers are names of cipher suites with colons between them.
	Ciphers string
	// Verify the certificate and the name of the server.
	Verify bool
	// Within is how long the database may take to let us in; 10 seconds if zero.
	Within time.Duration
}

// Store is a database that is ready to be asked.
type Store struct {
	*dialect
	db *sql.DB
	// writes take turns where the database is a file.
	writes chan struct{}
	// types are the numbers of the kinds in this database.
	types map[*entity.Kind]int64
	kinds map[int64]*entity.Kind
	now   func() time.Time
}

// Connections that are kept open, of which some may be idle.
const (
	maxConnections  = 20
	idleConnections = 5
	idleTime        = 5 * time.Minute
)

// Open connects and makes what is missing in the database. Its errors have no password in them.
func Open(ctx context.Context, c Config) (*Store, error) {
	s := &Store{now: time.Now}
	var err error
	switch c.Type {
	case "postgres":
		s.dialect = postgres
		s.db, err = openPostgres(c)
	case "mysql":
		s.dialect = mysql
		s.db, err = openMySQL(c)
	case "sqlite":
		s.dialect = sqlite
		s.writes = make(chan struct{}, 1)
		s.db, err = openSQLite(c.DSN)
	default:
		err = fmt.Errorf("the type of the database is %q; it can be postgres, mysql or sqlite", c.Type)
	}
	if err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(maxConnections)
	s.db.SetMaxIdleConns(idleConnections)
	s.db.SetConnMaxIdleTime(idleTime)
	if err := s.reach(ctx, cmp.Or(c.Within, 10*time.Second)); err != nil {
		return nil, errors.Join(fmt.Errorf("reach the database: %w", err), s.db.Close())
	}
	if err := s.prepare(ctx); err != nil {
		if isFull(err) {
			err = &Unavailable{Err: err, Full: true}
		}
		return nil, errors.Join(fmt.Errorf("prepare the database: %w", err), s.db.Close())
	}
	return s, nil
}

// reach signs in once. Where packets are dropped on their way, nobody else would ever say that they are.
func (s *Store) reach(ctx context.Context, within time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := s.db.PingContext(limited)
	switch {
	case err == nil:
		return nil
	case isFull(err):
		return &Unavailable{Err: err, Full: true}
	case limited.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("it does not answer within %s; check its address, and the network to it: %w", within, err)
	}
	return err
}

// Close ends all connections.
func (s *Store) Close() error { return s.db.Close() }

// DB is for those who count its connections.
func (s *Store) DB() *sql.DB { return s.db }

// Check asks whether the database answers and is whole.
func (s *Store) Check(ctx context.Context) error { return s.checkClean(ctx) }

// errAddress hides what cannot be read: a password may be in it.
func errAddress(kind string) error {
	return fmt.Errorf("the address of the %s database cannot be read; it is not shown because a password may be in it", kind)
}

func openPostgres(c Config) (*sql.DB, error) {
	dsn, err := postgresDSN(c)
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, postgresProblem(err)
	}
	if c.Ciphers != "" && config.TLSConfig != nil {
		if config.TLSConfig.CipherSuites, err = cipherSuites(c.Ciphers); err != nil {
			return nil, err
		}
	}
	config.RuntimeParams["application_name"] = "modelplane-registry"
	return stdlib.OpenDB(*config), nil
}

// postgresProblem tells of a file that is missing; other reasons may show the address.
func postgresProblem(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("read the certificates for PostgreSQL: %w", path)
	}
	return errAddress("PostgreSQL")
}

// postgresDSN adds the files with certificates. What the address says of sslmode stays, except that Verify is never less
// than that.
func postgresDSN(c Config) (string, error) {
	set := map[string]string{}
	for key, value := range map[string]string{"sslcert": c.Certificate, "sslkey": c.Key, "sslrootcert": c.Roots} {
		if value != "" {
			set[key] = value
		}
	}
	mode, err := sslMode(c.DSN)
	if err != nil {
		return "", err
	}
	switch {
	case c.Verify && mode != "verify-ca" && mode != "verify-full":
		set["sslmode"] = "verify-full"
	case mode == "" && len(set) > 0:
		set["sslmode"] = "require"
	}
	if !isAddress(c.DSN) {
		var out strings.Builder
		out.WriteString(c.DSN)
		for key, value := range set {
			fmt.Fprintf(&out, " %s='%s'", key, strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value))
		}
		return out.String(), nil
	}
	u, err := url.Parse(c.DSN)
	if err != nil {
		return "", errAddress("PostgreSQL")
	}
	query := u.Query()
	for key, value := range set {
		query.Set(key, value)
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}

func isAddress(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// sslMode is what an address or a list says of it.
func sslMode(dsn string) (string, error) {
	if isAddress(dsn) {
		u, err := url.Parse(dsn)
		if err != nil {
			return "", errAddress("PostgreSQL")
		}
		return u.Query().Get("sslmode"), nil
	}
	for field := range strings.FieldsSeq(dsn) {
		if mode, ok := strings.CutPrefix(field, "sslmode="); ok {
			return strings.Trim(mode, "'"), nil
		}
	}
	return "", nil
}

func openMySQL(c Config) (*sql.DB, error) {
	config, err := mysqlConfig(c)
	if err != nil {
		return nil, err
	}
	connector, err := mysqldriver.NewConnector(config)
	if err != nil {
		return nil, errAddress("MySQL")
	}
	return sql.OpenDB(connector), nil
}

func mysqlConfig(c Config) (*mysqldriver.Config, error) {
	dsn, password := c.DSN, c.MySQLPassword
	if password != "" { // out of the address, in which its characters may mean something else
		before, after, found := strings.Cut(dsn, ":"+password+"@")
		if found {
			dsn = before + "@" + after
		}
	}
	config, err := mysqldriver.ParseDSN(dsn)
	if err != nil {
		return nil, errAddress("MySQL")
	}
	if config.Passwd == "" {
		config.Passwd = password
	}
	if config.Params["charset"] == "" && config.Collation == "" {
		config.Collation = "utf8mb4_bin"
	}
	config.InterpolateParams = true // else every question takes three round trips
	config.Logger = &mysqldriver.NopLogger{}
	if c.Certificate == "" && c.Roots == "" && c.Ciphers == "" && !c.Verify {
		return config, nil
	}
	config.TLS, err = tlsConfig(c)
	if err == nil {
		config.TLS.ServerName, _, _ = strings.Cut(config.Addr, ":")
	}
	return config, err
}

func tlsConfig(c Config) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: !c.Verify} //nolint:gosec // the user says whether to verify
	var err error
	if c.Ciphers != "" {
		if out.CipherSuites, err = cipherSuites(c.Ciphers); err != nil {
			return nil, err
		}
	}
	if c.Roots != "" {
		if out.RootCAs, err = certificates(c.Roots); err != nil {
			return nil, err
		}
	}
	if c.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return nil, fmt.Errorf("read the certificate for the database: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// certificates reads a file, or all files of a directory.
func certificates(path string) (*x509.CertPool, error) {
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		files, _ = filepath.Glob(filepath.Join(path, "*")) // the pattern is a good one
	}
	pool, found := x509.NewCertPool(), false
	for _, file := range files {
		if info, err := os.Stat(file); len(files) > 1 && (err != nil || info.IsDir()) {
			continue // what a mounted ConfigMap has beside its files
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the certificates of the database: %w", err)
		}
		found = pool.AppendCertsFromPEM(text) || found
	}
	if !found {
		return nil, fmt.Errorf("there is no certificate in %s", path)
	}
	return pool, nil
}

func cipherSuites(names string) ([]uint16, error) {
	all := slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites())
	var out []uint16
	for name := range strings.SplitSeq(names, ":") {
		i := slices.IndexFunc(all, func(s *tls.CipherSuite) bool { return s.Name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("there is no cipher suite %q", name)
		}
		out = append(out, all[i].ID)
	}
	return out, nil
}

func openSQLite(path string) (*sql.DB, error) {
	if path == "" {
		return nil, errors.New("the file of the SQLite database is not named")
	}
	settings := url.Values{"_pragma": {
		"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(10000)", "foreign_keys(0)", "case_sensitive_like(1)",
	}, "_txlock": {"immediate"}}
	return sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+settings.Encode())
}
