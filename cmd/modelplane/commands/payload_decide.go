// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/modelplane/modelplane/internal/maas/enforce"
	"github.com/modelplane/modelplane/internal/maas/metering"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/quota"
	"github.com/modelplane/modelplane/internal/maas/selection"
	"github.com/modelplane/modelplane/internal/maas/selection/feed"
	"github.com/modelplane/modelplane/internal/process"
)

// decideFlags are for processors that decide about requests themselves.
type decideFlags struct {
	tenant, namespace  string
	api, ca, tokenFile string
	audiences          []string
	allow              bool
}

func (d *decideFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&d.tenant, "tenant", "", "with the plugin maas-enforcement: the tenant whose requests these are (default TENANT_NAME)")
	flags.StringVar(&d.namespace, "subscription-namespace", "", "where the tenant's subscriptions and access policies are (default: the first --tenant-namespace)")
	flags.StringVar(&d.api, "maas-api-url", "", "internal address of the tenant's maas-api, which checks keys and keeps usage (default https://maas-api.NAMESPACE.svc.cluster.local:8444, with the tenant's suffix)")
	flags.StringVar(&d.ca, "maas-api-ca-file", "", "file with the authorities of its certificate (default ca.crt beside --tls-cert-file, if it is there)")
	flags.StringVar(&d.tokenFile, "maas-api-token-file", "/var/run/secrets/kubernetes.io/serviceaccount/token", "file with the token that is shown to it; read again when it changes")
	flags.StringSliceVar(&d.audiences, "token-audience", nil, "audiences of Kubernetes tokens that are accepted from clients (default: that of the API server)")
	flags.BoolVar(&d.allow, "allow-uncounted", false, "let requests through while the counters in Redis do not answer; otherwise they get 503. REDIS_URL says where they are; without it they are in memory, for one replica")
}

// check fills in what the platform says by variables.
func (d *decideFlags) check(tlsCert string, namespaces []string, getenv func(string) string) error {
	d.tenant = cmp.Or(d.tenant, getenv("TENANT_NAME"))
	if d.namespace == "" && len(namespaces) > 0 {
		d.namespace = namespaces[0]
	}
	if own := getenv("NAMESPACE"); d.api == "" && own != "" {
		d.api = fmt.Sprintf("https://%s.%s.svc.cluster.local:8444", naming.OfTenant("maas-api", d.tenant), own)
	}
	if beside := filepath.Join(filepath.Dir(tlsCert), "ca.crt"); d.ca == "" && tlsCert != "" {
		if _, err := os.Stat(beside); err == nil {
			d.ca = beside
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for the authorities of maas-api: %w", err)
		}
	}
	if d.tenant == "" || d.api == "" {
		return errors.New("the configuration has the plugin maas-enforcement, which needs --tenant and --maas-api-url")
	}
	return nil
}

// client speaks to maas-api and shows who we are.
func (d *decideFlags) client() (*http.Client, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if d.ca != "" {
		text, err := os.ReadFile(d.ca)
		if err != nil {
			return nil, fmt.Errorf("read the authorities of maas-api: %w", err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate", d.ca)
		}
	}
	const connections = 64
	base := &http.Transport{TLSClientConfig: trust, MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections, IdleConnTimeout: time.Minute}
	wrap := transport.TokenSourceWrapTransport(transport.NewCachedFileTokenSource(d.tokenFile))
	return &http.Client{Timeout: 3 * time.Second, Transport: wrap(base)}, nil
}

// counters are in Redis when there is one; its address may hold a password and is no flag.
func (f *payloadFlags) counters(getenv func(string) string) (quota.Counters, error) {
	const users = 1 << 20
	if url := getenv("REDIS_URL"); url != "" {
		return quota.OpenRedis(quota.RedisOptions{URL: url, Prefix: "maas:quota:" + f.decide.tenant + ":"})
	}
	f.Log.Info("Tokens are counted in memory: run one replica, or set REDIS_URL")
	return quota.NewMemory(users, time.Now), nil
}

// decides makes what the plugin maas-enforcement asks, of its real parts.
func (f *payloadFlags) decides(cfg *rest.Config) error {
	d := &f.decide
	client, err := d.client()
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("prepare to talk to the API server: %w", err)
	}
	reviews, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("prepare to talk to the API server: %w", err)
	}
	index := selection.NewIndex()
	watched, err := feed.New(objects, d.namespace, index, f.Log)
	if err != nil {
		return err
	}
	counters, err := f.counters(os.Getenv)
	if err != nil {
		return err
	}
	const series = 10_000
	f.Registry = process.NewRegistry("payload-processing")
	metrics, ledger := metering.NewMetrics(series), quota.NewLedger(counters, quota.LedgerOptions{Allow: d.allow, Log: f.Log})
	if err := errors.Join(metrics.Register(f.Registry), ledger.Register(f.Registry)); err != nil {
		return err
	}
	recorder := metering.NewRecorder(metering.NewRemote(client, d.api), metrics, metering.RecorderOptions{Log: f.Log})
	f.World.Enforcer, err = enforce.New(enforce.Options{
		Tenant: d.tenant, Keys: enforce.NewRemoteKeys(client, d.api, d.tenant), Tokens: enforce.NewClusterTokens(reviews, d.audiences),
		Selector: enforce.ChosenBy(index, watched.Synced), Ledger: ledger, Meter: recorder, Log: f.Log,
	})
	f.Tasks = append(f.Tasks, watched.Run, ledger.Run, recorder.Run)
	known := f.Ready
	f.Ready = func() error {
		if !watched.Synced() {
			return enforce.ErrNotRead
		}
		return known()
	}
	return err
}
