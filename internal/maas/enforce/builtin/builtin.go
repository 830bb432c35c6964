// SPDX-License-Identifier: Apache-2.0

// Package builtin puts the parts of enforcement together for a process: keys are checked by the server of the API, tokens by the
// API server, subscriptions are watched, tokens counted in memory or in a server for all replicas, and usage is told to the
// server of the API. It decides nothing itself.
package builtin

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/modelplane/modelplane/internal/maas/enforce"
	"github.com/modelplane/modelplane/internal/maas/metering"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/quota"
	"github.com/modelplane/modelplane/internal/maas/selection"
)

// Flags of a process that enforces.
type Flags struct {
	// API is the address of the server's internal routes, CA vouches for it, and TokenFile has a token of our account.
	API, CA, TokenFile string
	// Tenant whose requests these are, and Namespace of its subscriptions and policies.
	Tenant, Namespace string
	// Audiences of tokens of the cluster.
	Audiences []string
	// OIDC is an identity provider whose tokens are accepted as well.
	OIDC enforce.OIDCOptions
	// Counters is the address of a Redis or Valkey server, CountersFile a file that has it; neither: counters are in memory.
	Counters, CountersFile string
	// Allow lets requests through while the counters do not answer, for which they have Patience.
	Allow    bool
	Patience time.Duration
	// Expect is how many tokens an answer is expected to have.
	Expect int64
}

// Register them.
func (f *Flags) Register(flags *pflag.FlagSet) {
	flags.StringVar(&f.Tenant, "tenant", "", "with the plugin maas-enforcement: the tenant whose requests these are (default TENANT_NAME)")
	flags.StringVar(&f.Namespace, "subscription-namespace", "", "where the tenant's subscriptions and access policies are (default: the first --tenant-namespace)")
	flags.StringVar(&f.API, "maas-api-url", "", "internal address of the tenant's maas-api, which checks keys and keeps usage (default https://maas-api.NAMESPACE.svc.cluster.local:8444, with the tenant's suffix)")
	flags.StringVar(&f.CA, "maas-api-ca-file", "", "file with the authorities of its certificate (default ca.crt beside --tls-cert-file, if it is there)")
	flags.StringVar(&f.TokenFile, "maas-api-token-file", "/var/run/secrets/kubernetes.io/serviceaccount/token", "file with the token that is shown to it; read again when it changes")
	flags.StringSliceVar(&f.Audiences, "token-audience", nil, "audiences of Kubernetes tokens that are accepted from clients (default: that of the API server)")
	f.OIDC.Register(flags)
	flags.StringVar(&f.CountersFile, "counters-url-file", "", "file with the address of the Redis or Valkey server that counts tokens for all replicas, redis://[user:password@]host:port/number or rediss:// (default REDIS_URL; without either they are counted in memory, which is for one replica)")
	flags.BoolVar(&f.Allow, "allow-uncounted", false, "let requests through while the counters in Redis do not answer; otherwise they get 503. REDIS_URL says where they are; without it they are in memory, for one replica")
	flags.DurationVar(&f.Patience, "counters-timeout", 500*time.Millisecond, "how long a request waits for the counters in Redis; then they do not answer")
	flags.Int64Var(&f.Expect, "expected-tokens", 500, "tokens that an answer is expected to have when the request does not bound them; so many are held while it runs, and charged when an answer says nothing")
}

// Check fills in what the platform says by variables and by the other flags of the process, and refuses what cannot be meant.
func (f *Flags) Check(tlsCert string, namespaces []string, getenv func(string) string) error {
	f.Tenant, f.Counters = cmp.Or(f.Tenant, getenv("TENANT_NAME")), getenv("REDIS_URL")
	if f.Namespace == "" && len(namespaces) > 0 {
		f.Namespace = namespaces[0]
	}
	if own := getenv("NAMESPACE"); f.API == "" && own != "" {
		f.API = fmt.Sprintf("https://%s.%s.svc.cluster.local:8444", naming.OfTenant("maas-api", f.Tenant), own)
	}
	if beside := filepath.Join(filepath.Dir(tlsCert), "ca.crt"); f.CA == "" && tlsCert != "" {
		if _, err := os.Stat(beside); err == nil {
			f.CA = beside
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for the authorities of maas-api: %w", err)
		}
	}
	if f.Tenant == "" || f.API == "" {
		return errors.New("the configuration has the plugin maas-enforcement, which needs --tenant and --maas-api-url")
	}
	address, err := url.Parse(f.API)
	switch {
	case err != nil || address.Scheme != "https" && address.Scheme != "http" || address.Host == "" || address.User != nil:
		return errors.New("--maas-api-url must be an address such as https://maas-api.models:8444")
	case f.Namespace == "":
		return errors.New("--subscription-namespace must say where the tenant's subscriptions are")
	case f.Patience < time.Millisecond || f.Patience > time.Minute:
		return errors.New("--counters-timeout must be between 1ms and 1m")
	case f.Expect < 1 || f.Expect > 1_000_000:
		return errors.New("--expected-tokens must be between 1 and 1000000")
	}
	return f.OIDC.Check()
}

// Parts of a process that enforces.
type Parts struct {
	*enforce.Enforcer
	// Tasks have to run from before the first request until after the last answer, so that all of them are charged. They end
	// when their context does, after they have written what is left.
	Tasks []func(context.Context) error
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

// series of metrics that are told apart.
const series = 10_000

// askTime is how long the server of the API may take.
const askTime = 3 * time.Second

// New makes them, with an index of subscriptions and what feeds it. Nothing has to answer yet.
func New(f Flags, kube *rest.Config, index *selection.Index, watches Feed, registry prometheus.Registerer, log *slog.Logger) (*Parts, error) {
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	unhindered := rest.CopyConfig(kube)
	unhindered.QPS = -1 // how many reviews are under way is bounded, so that none waits behind those of others
	tokens, err := kubernetes.NewForConfig(unhindered)
	if err != nil {
		return nil, err
	}
	ledger, end, err := f.ledger(log)
	if err != nil {
		return nil, err
	}
	metrics := metering.NewMetrics(series)
	if err := errors.Join(metrics.Register(registry), ledger.Register(registry)); err != nil {
		return nil, err
	}
	recorder := metering.NewRecorder(metering.NewRemote(client, f.API), metrics, metering.RecorderOptions{Log: log})
	people, err := f.OIDC.Tokens(enforce.NewClusterTokens(tokens, f.Audiences))
	if err != nil {
		return nil, errors.Join(err, end())
	}
	enforcer, err := enforce.New(enforce.Options{
		Tenant: f.Tenant, Keys: enforce.NewRemoteKeys(client, f.API, f.Tenant), Tokens: people,
		Selector: enforce.ChosenBy(index, watches.Synced), Ledger: ledger, Meter: recorder, Log: log, Expect: f.Expect,
	})
	if err != nil {
		return nil, err
	}
	return &Parts{
		Enforcer: enforcer, feed: watches,
		Tasks: []func(context.Context) error{watches.Run, recorder.Run, func(ctx context.Context) error { return errors.Join(ledger.Run(ctx), end()) }},
	}, nil
}

// client speaks to maas-api and shows who we are.
func (f *Flags) client() (*http.Client, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("read the authorities of maas-api: %w", err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate", f.CA)
		}
	}
	const connections = 64
	base := &http.Transport{TLSClientConfig: trust, MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections, IdleConnTimeout: time.Minute}
	wrap := transport.TokenSourceWrapTransport(transport.NewCachedFileTokenSource(f.TokenFile))
	return &http.Client{Timeout: askTime, Transport: wrap(base)}, nil
}

// users is how many counters there may be in memory.
const users = 1 << 20

// ledger counts in memory, or in the server whose address is in a variable or a file; it may hold a password and is no flag.
func (f *Flags) ledger(log *slog.Logger) (*quota.Ledger, func() error, error) {
	options := quota.LedgerOptions{Allow: f.Allow, Timeout: f.Patience, Log: log}
	address := f.Counters
	if f.CountersFile != "" {
		text, err := os.ReadFile(f.CountersFile)
		if err != nil {
			return nil, nil, fmt.Errorf("read the address of the counters' server: %w", err)
		}
		address = strings.TrimSpace(string(text))
	}
	if address == "" {
		log.Info("Tokens are counted in memory: run one replica, or set REDIS_URL")
		return quota.NewLedger(quota.NewMemory(users, nil), options), func() error { return nil }, nil
	}
	counters, err := quota.OpenRedis(quota.RedisOptions{URL: address, Prefix: "maas:quota:" + f.Tenant + ":", Timeout: f.Patience})
	if err != nil {
		return nil, nil, err
	}
	return quota.NewLedger(counters, options), counters.Close, nil
}
