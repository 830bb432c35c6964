// SPDX-License-Identifier: Apache-2.0

// Package builtin puts the parts of enforcement together for a process: keys are checked by the server of the API, tokens by the
// API server, subscriptions are watched, tokens counted in memory or in a server for all replicas, and usage is told to the
// server of the API. It decides nothing itself.
package builtin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/modelplane/modelplane/internal/maas/enforce"
	"github.com/modelplane/modelplane/internal/maas/metering"
	"github.com/modelplane/modelplane/internal/maas/quota"
	"github.com/modelplane/modelplane/internal/maas/selection"
)

// Flags of a process that enforces. Without an address of the API nothing is enforced.
type Flags struct {
	// API is the address of the server's internal routes, CA vouches for it, and TokenFile has a token of our account.
	API, CA, TokenFile string
	// Tenant whose requests these are, and Namespace of its subscriptions and policies.
	Tenant, Namespace string
	// Audiences of tokens of the cluster.
	Audiences []string
	// CountersFile has the address of a Redis or Valkey server; empty: counters are in memory. Lost is deny or allow.
	CountersFile, Lost string
	// Expect is how many tokens an answer is expected to have.
	Expect int64
}

// Register them.
func (f *Flags) Register(flags *pflag.FlagSet) {
	flags.StringVar(&f.API, "maas-api-address", "", "address of the internal routes of modelplane maas-api, such as https://maas-api.models:9443; requests are then checked against keys, subscriptions and quotas here (default: they are not)")
	flags.StringVar(&f.CA, "maas-api-ca-file", "", "file with the certificates that vouch for maas-api (default: those of the system)")
	flags.StringVar(&f.TokenFile, "maas-api-token-file", "/var/run/secrets/kubernetes.io/serviceaccount/token", "file with the token that is shown to maas-api; read again when it changes")
	flags.StringVar(&f.Tenant, "tenant-name", "", "tenant whose requests are checked (default TENANT_NAME)")
	flags.StringVar(&f.Namespace, "subscription-namespace", "", "namespace of the tenant's subscriptions and policies (default MAAS_SUBSCRIPTION_NAMESPACE)")
	flags.StringSliceVar(&f.Audiences, "token-audience", nil, "audiences of which a token of the cluster must have one (default: that of the API server)")
	flags.StringVar(&f.CountersFile, "counters-url-file", "", "file with the address of the Redis or Valkey server that counts tokens for all replicas, redis://[user:password@]host:port/number or rediss:// (default: they are counted in memory, which is for one replica)")
	flags.StringVar(&f.Lost, "counters-lost", "deny", "what happens to requests while that server does not answer: deny or allow")
	flags.Int64Var(&f.Expect, "expected-tokens", 500, "tokens that an answer is expected to have; so many are held while a request runs, and charged when an answer does not say")
}

// On tells whether anything is enforced.
func (f *Flags) On() bool { return f.API != "" }

// Check refuses what cannot be meant.
func (f *Flags) Check() error {
	if !f.On() {
		return nil
	}
	if f.Tenant == "" {
		f.Tenant = os.Getenv("TENANT_NAME")
	}
	if f.Namespace == "" {
		f.Namespace = os.Getenv("MAAS_SUBSCRIPTION_NAMESPACE")
	}
	address, err := url.Parse(f.API)
	switch {
	case err != nil || address.Scheme != "https" && address.Scheme != "http" || address.Host == "" || address.User != nil:
		return errors.New("--maas-api-address must be an address such as https://maas-api.models:9443")
	case f.Tenant == "":
		return errors.New("--tenant-name must say whose requests are checked")
	case f.Namespace == "":
		return errors.New("--subscription-namespace must say where the tenant's subscriptions are")
	case f.Lost != "deny" && f.Lost != "allow":
		return fmt.Errorf("--counters-lost is %q; it can be deny or allow", f.Lost)
	case f.Expect < 1 || f.Expect > 1_000_000:
		return errors.New("--expected-tokens must be between 1 and 1000000")
	}
	return nil
}

// Parts of a process that enforces.
type Parts struct {
	*enforce.Enforcer
	// tasks end when their context does, after they have written what is left.
	tasks []func(context.Context) error
	feed  Feed
}

// Feed keeps an index of subscriptions up to date.
type Feed interface {
	Run(ctx context.Context) error
	// Synced tells whether the index has everything.
	Synced() bool
}

// Ready says what is not there yet.
func (p *Parts) Ready() error {
	if !p.feed.Synced() {
		return enforce.ErrNotRead
	}
	return nil
}

// Around runs a server, and all parts from before its beginning until after its end: requests that it still answers when it is
// told to stop are counted and charged like all others.
func (p *Parts) Around(ctx context.Context, serve func(context.Context) error) error {
	longer, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, len(p.tasks))
	for _, task := range p.tasks {
		go func() { ended <- task(longer) }()
	}
	err := serve(ctx)
	stop()
	for range p.tasks {
		err = errors.Join(err, <-ended)
	}
	return err
}

// askTime is how long the server of the API may take.
const askTime = 3 * time.Second

// New makes them, with an index of subscriptions and what feeds it. Nothing has to answer yet.
func New(f Flags, kube *rest.Config, index *selection.Index, watches Feed, registry prometheus.Registerer, log *slog.Logger) (*Parts, error) {
	client, err := rest.HTTPClientFor(&rest.Config{Host: f.API, BearerTokenFile: f.TokenFile, TLSClientConfig: rest.TLSClientConfig{CAFile: f.CA}, Timeout: askTime})
	if err != nil {
		return nil, fmt.Errorf("reach maas-api: %w", err)
	}
	tokens, err := kubernetes.NewForConfig(kube)
	if err != nil {
		return nil, err
	}
	ledger, end, err := f.ledger(log)
	if err != nil {
		return nil, err
	}
	metrics := metering.NewMetrics(0)
	if err := errors.Join(metrics.Register(registry), ledger.Register(registry)); err != nil {
		return nil, err
	}
	recorder := metering.NewRecorder(metering.NewRemote(client, f.API), metrics, metering.RecorderOptions{Log: log})
	enforcer, err := enforce.New(enforce.Options{
		Tenant: f.Tenant, Keys: enforce.NewRemoteKeys(client, f.API, f.Tenant), Tokens: enforce.NewClusterTokens(tokens, f.Audiences),
		Selector: enforce.ChosenBy(index, watches.Synced), Ledger: ledger, Meter: recorder, Log: log, Expect: f.Expect,
	})
	if err != nil {
		return nil, err
	}
	return &Parts{
		Enforcer: enforcer, feed: watches,
		tasks: []func(context.Context) error{watches.Run, recorder.Run, func(ctx context.Context) error { return errors.Join(ledger.Run(ctx), end()) }},
	}, nil
}

// ledger counts in memory, or in the server whose address is in a file.
func (f *Flags) ledger(log *slog.Logger) (*quota.Ledger, func() error, error) {
	options := quota.LedgerOptions{Allow: f.Lost == "allow", Log: log}
	if f.CountersFile == "" {
		return quota.NewLedger(quota.NewMemory(0, nil), options), func() error { return nil }, nil
	}
	address, err := os.ReadFile(f.CountersFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read the address of the counters' server: %w", err)
	}
	counters, err := quota.OpenRedis(quota.RedisOptions{URL: strings.TrimSpace(string(address)), Prefix: "maas:quota:" + f.Tenant + ":"})
	if err != nil {
		return nil, nil, err
	}
	return quota.NewLedger(counters, options), counters.Close, nil
}
