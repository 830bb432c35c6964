// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/maas/enforce"
	"github.com/modelplane/modelplane/internal/maas/keys"
	"github.com/modelplane/modelplane/internal/maas/metering"
	"github.com/modelplane/modelplane/internal/maas/pass"
	"github.com/modelplane/modelplane/internal/maas/selection"
	"github.com/modelplane/modelplane/internal/maas/selection/feed"
	"github.com/modelplane/modelplane/internal/maas/store"
	"github.com/modelplane/modelplane/internal/process"
)

// Program is the process that serves the API.
type Program struct {
	Log  *slog.Logger
	Kube *rest.Config

	Namespace, Name                     string
	GatewayName, GatewayNamespace       string
	SubscriptionNamespace, TenantName   string
	Address, InternalAddress            string
	Secure, SelfSigned, Debug           bool
	TLSCert, TLSKey, TLSMinVersion      string
	MaxDays, AdminAnswers, DebounceSecs int
	// UsageDays is how long usage is kept; zero: for ever.
	UsageDays                            int
	MetricsPort                          int
	MaxOpen, MaxIdle, ConnectionLifetime int

	// DatabaseURLFile has the address of the database, else DatabaseURL, else a Secret of the namespace.
	DatabaseURLFile, DatabaseURL string
	// PepperFile has the pepper of new keys; empty: none.
	PepperFile string

	// GatewayClientCA signs certificates of gateways in the names GatewayClientNames; GatewayTokenFile has a secret that they share.
	GatewayClientCA, GatewayTokenFile string
	GatewayClientNames                []string
	// InternalClientCA signs certificates of clients of internal routes in the names InternalClientNames; tokens of
	// InternalAccounts are good as well.
	InternalClientCA                      string
	InternalClientNames, InternalAccounts []string
	// InternalKeyFile has the keys by which passes are checked; empty: none is good.
	InternalKeyFile string

	// OIDC is an identity provider whose people may use the API as well.
	OIDC enforce.OIDCOptions

	Delay time.Duration
}

// The Secret that has the address of the database.
const databaseSecret, databaseKey = "maas-db-config", "DB_CONNECTION_URL"

// stopTime bounds the whole end.
const stopTime = 25 * time.Second

// Check understands what the command line says; whatever it refuses is a wrong call.
func (p *Program) Check() error {
	if p.Address == "" {
		p.Address = ":8080"
		if p.Secure {
			p.Address = ":8443"
		}
	}
	p.Name = cmp.Or(p.Name, p.GatewayName)
	if len(p.InternalAccounts) == 0 {
		p.InternalAccounts = []string{"system:serviceaccount:" + p.Namespace + ":*"}
	}
	switch {
	case p.TenantName == "":
		return errors.New("--tenant-name is empty; name the tenant whose keys these are")
	case p.SubscriptionNamespace == "" || strings.ContainsAny(p.SubscriptionNamespace, "/._ ") || len(p.SubscriptionNamespace) > 63:
		return fmt.Errorf("--subscription-namespace %q is no namespace", p.SubscriptionNamespace)
	case p.MaxDays < 1:
		return errors.New("--api-key-max-expiration-days must be at least 1")
	case p.UsageDays < 0:
		return errors.New("--usage-retention-days must not be negative; 0 keeps usage for ever")
	case p.DebounceSecs < 0:
		return errors.New("--last-used-debounce-secs must not be negative")
	case p.Secure && !p.SelfSigned && (p.TLSCert == "" || p.TLSKey == ""):
		return errors.New("--secure needs --tls-cert and --tls-key, or --tls-self-signed")
	case (p.TLSCert == "") != (p.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key go together")
	case p.TLSMinVersion != "1.2" && p.TLSMinVersion != "1.3":
		return fmt.Errorf("--tls-min-version %q is unknown; use 1.2 or 1.3", p.TLSMinVersion)
	case p.GatewayClientCA != "" && len(p.GatewayClientNames) == 0:
		return errors.New("--gateway-client-ca needs --gateway-client-names: in which names gateways show certificates")
	case p.InternalClientCA != "" && len(p.InternalClientNames) == 0:
		return errors.New("--internal-client-ca needs --internal-client-names: in which names clients show certificates")
	case (p.GatewayClientCA != "" || p.InternalClientCA != "") && !p.Secure:
		return errors.New("client certificates need --secure")
	}
	return p.OIDC.Check()
}

// Run serves until the context ends.
func (p *Program) Run(ctx context.Context) error {
	cluster, dynamicClient, err := p.cluster()
	if err != nil {
		return err
	}
	url, err := p.databaseURL(ctx, cluster.Client)
	if err != nil {
		return err
	}
	digester, err := p.digester()
	if err != nil {
		return err
	}
	review, err := reviewerOf(p.OIDC, cluster.Review)
	if err != nil {
		return err
	}
	kept, err := p.open(ctx, url)
	if err != nil {
		return err
	}
	uses := store.NewUses(kept, usesEvery, p.Log)
	cache := keys.NewCache(kept, digester, keys.CacheOptions{Tenant: p.TenantName, Used: uses.Note, Debounce: time.Duration(p.DebounceSecs) * time.Second})
	index := selection.NewIndex()
	watched, err := feed.New(dynamicClient, p.SubscriptionNamespace, index, p.Log)
	if err != nil {
		return errors.Join(err, kept.Close())
	}
	usage := metering.NewSQL(kept.DB(), kept.Postgres())
	if err := usage.Prepare(ctx); err != nil {
		return errors.Join(err, kept.Close())
	}
	registry := process.NewRegistry("maas-api")
	registry.MustRegister(collectors.NewDBStatsCollector(kept.DB(), "maas-api"))
	CacheMetrics(registry, cache)
	cluster.Metrics(registry)
	a := New(Options{
		Log: p.Log, Tenant: p.TenantName, MaxDays: p.MaxDays, Store: kept, Cache: cache, Digester: digester, Index: index, Admin: cluster.Admin, Tenants: cluster,
		Identity: &Identity{Cache: cache, Review: review, Gateway: GatewayTrust{Names: p.GatewayClientNames, Secret: p.gatewaySecret}.Is},
		Metrics:  NewMetrics(registry), Usage: usage, Synced: watched.Synced, Debug: p.Debug,
	})
	servers, err := p.servers(a, cluster)
	if err != nil {
		return errors.Join(err, kept.Close())
	}
	err = process.Program{
		Log: p.Log, Servers: servers, Delay: p.Delay, Timeout: stopTime,
		Aside: []process.Server{{Name: "metrics", Address: metricsAddress(p.MetricsPort), Handler: process.Metrics(registry, nil, p.Log)}},
		Tasks: []func(context.Context) error{
			func(ctx context.Context) error { return kept.Watch(ctx, cache) }, uses.Run, watched.Run,
			keepUsage(usage, p.TenantName, p.UsageDays, p.Log),
		},
	}.Run(ctx)
	uses.Flush(context.WithoutCancel(ctx)) // what was noted by the last requests
	return errors.Join(err, kept.Close())
}

// usesEvery is how often times of use are written.
const usesEvery = 5 * time.Second

func metricsAddress(port int) string {
	if port == 0 {
		return "0"
	}
	return net.JoinHostPort("", strconv.Itoa(port))
}

func (p *Program) cluster() (*Cluster, dynamic.Interface, error) {
	client, err := kubernetes.NewForConfig(p.Kube)
	if err != nil {
		return nil, nil, err
	}
	dynamicClient, err := dynamic.NewForConfig(p.Kube)
	if err != nil {
		return nil, nil, err
	}
	return NewCluster(Cluster{
		Client: client, Dynamic: dynamicClient, Namespace: p.SubscriptionNamespace, GatewayName: p.GatewayName, GatewayNamespace: p.GatewayNamespace,
	}, p.AdminAnswers), dynamicClient, nil
}

// databaseURL has a password in it, and is shown to nobody.
func (p *Program) databaseURL(ctx context.Context, client kubernetes.Interface) (string, error) {
	switch {
	case p.DatabaseURLFile != "":
		text, err := os.ReadFile(p.DatabaseURLFile)
		if err != nil {
			return "", fmt.Errorf("read the address of the database: %w", err)
		}
		return strings.TrimSpace(string(text)), nil
	case p.DatabaseURL != "":
		return p.DatabaseURL, nil
	}
	secret, err := client.CoreV1().Secrets(p.Namespace).Get(ctx, databaseSecret, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the address of the database from the Secret %s/%s: %w", p.Namespace, databaseSecret, err)
	}
	url := strings.TrimSpace(string(secret.Data[databaseKey]))
	if url == "" {
		return "", fmt.Errorf("the Secret %s/%s has no key %s; put the address of the database there, such as postgresql://user:password@host:5432/maas", p.Namespace, databaseSecret, databaseKey)
	}
	return url, nil
}

func (p *Program) digester() (*keys.Digester, error) {
	if p.PepperFile == "" {
		return keys.NewDigester(nil)
	}
	pepper, err := os.ReadFile(p.PepperFile)
	if err != nil {
		return nil, fmt.Errorf("read the pepper of API keys: %w", err)
	}
	if len(strings.TrimSpace(string(pepper))) == 0 {
		return nil, fmt.Errorf("the pepper of API keys in %s is empty; without one, leave --api-key-pepper-file out", p.PepperFile)
	}
	return keys.NewDigester([]byte(strings.TrimSpace(string(pepper))))
}

// How often a database is tried that does not answer, with pauses of 1, 2, 3 … seconds.
const attempts = 15

func (p *Program) open(ctx context.Context, url string) (*store.Store, error) {
	for attempt := 1; ; attempt++ {
		s, err := store.Open(ctx, store.Config{URL: url, MaxOpen: p.MaxOpen, MaxIdle: p.MaxIdle, Lifetime: time.Duration(p.ConnectionLifetime) * time.Second, Log: p.Log})
		if err == nil || ctx.Err() != nil || attempt == attempts || store.Refused(err) {
			return s, err
		}
		p.Log.Warn("The database cannot be used yet", "attempt", attempt, "err", err.Error())
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Duration(attempt) * time.Second):
		}
	}
}

// gatewaySecret is read each time: it is short, and may be replaced at any moment.
func (p *Program) gatewaySecret() string {
	if p.GatewayTokenFile == "" {
		return ""
	}
	text, err := os.ReadFile(p.GatewayTokenFile)
	if err != nil {
		p.Log.Error("The secret of gateways cannot be read; nobody is taken for one", "err", err.Error())
		return ""
	}
	return strings.TrimSpace(string(text))
}

// goodPass checks a pass. The keys are read each time, like the secret of gateways.
func (p *Program) goodPass(shown string) bool {
	if p.InternalKeyFile == "" {
		return false
	}
	text, err := os.ReadFile(p.InternalKeyFile)
	if err != nil {
		p.Log.Error("The keys of passes cannot be read; no pass is good", "err", err.Error())
		return false
	}
	known, err := pass.ParseKeys(string(text))
	if err != nil {
		p.Log.Error("The keys of passes cannot be used; no pass is good", "file", p.InternalKeyFile, "err", err.Error())
		return false
	}
	return pass.Good(known, p.TenantName, shown, time.Now())
}

func (p *Program) servers(a *API, cluster *Cluster) ([]process.Server, error) {
	limits := process.Limits{Header: 5 * time.Second, Read: 15 * time.Second, Write: 30 * time.Second, Idle: time.Minute, Body: 2 * maxBody} // handlers refuse sooner
	public := process.Server{Name: "the API", Address: p.Address, Handler: a.Handler(), Limits: limits}
	trust := InternalTrust{Names: p.InternalClientNames, Accounts: p.InternalAccounts, Review: cluster.Review, Pass: p.goodPass}
	inner := process.Server{Name: "internal routes", Address: p.InternalAddress, Handler: a.Internal(trust.May), Limits: limits}
	if !p.Secure {
		return []process.Server{public, inner}, nil
	}
	get, err := p.certificate()
	if err != nil {
		return nil, err
	}
	if public.TLS, err = p.tls(get, p.GatewayClientCA); err != nil {
		return nil, err
	}
	if inner.TLS, err = p.tls(get, p.InternalClientCA); err != nil {
		return nil, err
	}
	return []process.Server{public, inner}, nil
}

type getCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

func (p *Program) certificate() (getCertificate, error) {
	if p.TLSCert != "" {
		certificate, err := process.LoadCertificateFiles(p.TLSCert, p.TLSKey, p.Log)
		if err != nil {
			return nil, err
		}
		return certificate.Get, nil
	}
	pair, err := certs.NewPair(time.Now(), "maas-api", []string{"maas-api", "maas-api." + p.Namespace + ".svc", "localhost"}, nil)
	if err != nil {
		return nil, err
	}
	made, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, err
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &made, nil }, nil
}

// tls asks for client certificates where somebody signs them. The authorities are read anew for each connection, so that
// they can be replaced; while they cannot be read, no certificate is good.
func (p *Program) tls(get getCertificate, authorities string) (*tls.Config, error) {
	config := process.TLS(get)
	if p.TLSMinVersion == "1.3" {
		config.MinVersion = tls.VersionTLS13
	}
	if authorities == "" {
		return config, nil
	}
	if _, err := readPool(authorities); err != nil {
		return nil, err
	}
	asking := config.Clone()
	asking.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool, err := readPool(authorities)
		if err != nil {
			p.Log.Error("The authorities of client certificates cannot be read; no certificate is accepted", "err", err.Error())
			return config, nil
		}
		c := config.Clone()
		c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, pool
		return c, nil
	}
	return asking, nil
}

func readPool(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the authorities of client certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("there is no certificate in %s", file)
	}
	return pool, nil
}
