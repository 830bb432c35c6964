// SPDX-License-Identifier: Apache-2.0

// Package storetest has the databases that a registry can be kept in, real ones. It is for tests only.
package storetest

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/modelplane/modelplane/internal/modelregistry/server/store"
	"github.com/modelplane/modelplane/internal/testkit/mariadb"
	"github.com/modelplane/modelplane/internal/testkit/postgres"
)

// Databases are all of them, each made when it is first asked for.
func Databases(t *testing.T) map[string]func(*testing.T) store.Config {
	pg, my := new(*postgres.Server), new(*mariadb.Server)
	n := 0
	return map[string]func(*testing.T) store.Config{
		"sqlite": func(t *testing.T) store.Config {
			return store.Config{Type: "sqlite", DSN: filepath.Join(t.TempDir(), "a file?.db")}
		},
		"postgres": func(*testing.T) store.Config {
			if *pg == nil {
				*pg = postgres.Start(t)
			}
			n++
			name := fmt.Sprintf("registry%d", n)
			(*pg).Database(t, name)
			return store.Config{Type: "postgres", DSN: (*pg).URI(name) + "?sslmode=disable"}
		},
		"mysql": func(*testing.T) store.Config {
			if *my == nil {
				*my = mariadb.Start(t)
			}
			n++
			name := fmt.Sprintf("registry%d", n)
			(*my).Database(t, name)
			return store.Config{Type: "mysql", DSN: (*my).DSN(name)}
		},
	}
}
