// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/internal/maas/store"
)

// keysDatabase is the variable with the address of the database of keys, which no argument may have.
const keysDatabase = "DB_CONNECTION_URL"

// newMaaSKeysCommand is for Jobs: what they do is done in the database itself, so that no server has to let them in.
func newMaaSKeysCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "maas-keys",
		Short: "Revoke or clean up the API keys of a tenant, in their database",
		Long:  "Revoke or clean up the API keys of a tenant, in their database. The address of the database is in the variable " + keysDatabase + ".",
		Args:  cobra.NoArgs,
	}
	revoke := keysCommand("revoke", "Revoke all API keys of a tenant", func(ctx context.Context, s *store.Store, tenant string) (int64, error) {
		return s.RevokeAll(ctx, store.Scope{Tenant: tenant}, time.Now())
	})
	cleanUp := keysCommand("clean-up", "Forget short-lived API keys of a tenant that expired more than half an hour ago", func(ctx context.Context, s *store.Store, tenant string) (int64, error) {
		const kept = 30 * time.Minute
		return s.CleanUp(ctx, tenant, time.Now().Add(-kept))
	})
	c.AddCommand(revoke, cleanUp)
	return c
}

// keysCommand does one thing with the keys of a tenant, and says with how many.
func keysCommand(use, short string, do func(context.Context, *store.Store, string) (int64, error)) *cobra.Command {
	var tenant string
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if tenant == "" {
				return errors.New("--tenant must name a tenant")
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := store.Open(c.Context(), store.Config{URL: os.Getenv(keysDatabase), MaxOpen: 1})
			if err != nil {
				return err
			}
			n, err := do(c.Context(), s, tenant)
			if err := errors.Join(err, s.Close()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%d keys\n", n)
			return err
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "tenant whose keys are meant")
	return c
}
