// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/process"
)

// off is the bind address that turns an endpoint of controller-runtime off.
const off = "0"

// LeaseName is the Lease that decides which replica leads.
const LeaseName = "modelplane-manager"

// Options says how the process runs; what it does is said by its domains.
type Options struct {
	// Namespace is the manager's own.
	Namespace string

	// WatchNamespaces are the ones whose objects are looked after; empty: all.
	WatchNamespaces []string

	// LeaderElection lets one of several replicas reconcile. Webhooks, metrics and health are served by all.
	LeaderElection bool
	Lease          Lease
	// PodUID is the pod's own, by which a process that is started again in it is known to hold the lease already; empty
	// outside of pods.
	PodUID string

	// Bind addresses; "0" or empty turns the endpoint off.
	HealthAddress    string
	MetricsAddress   string
	ProfilingAddress string
	// ProfilingAllowRemote permits a profiling address that other machines can reach. Profiles show memory.
	ProfilingAllowRemote bool

	// MetricsCertDir holds tls.crt and tls.key for the metrics endpoint; empty: the webhook certificate.
	MetricsCertDir string
	// MetricsService is the Service in Namespace that leads to the metrics endpoint; the certificate is good for it.
	MetricsService string

	WebhookHost string
	WebhookPort int
	// WebhookService is the Service in Namespace through which the API server reaches the webhooks.
	WebhookService string
	// WebhookAliases are further Services in Namespace that lead to the webhooks: the names that configurations of an earlier
	// installation call.
	WebhookAliases []string
	// WebhookURL takes the place of the Service when the manager runs outside the cluster.
	WebhookURL string

	// WebhookClientCA is a file with the certificate authorities of those who may call webhooks; empty: anybody.
	WebhookClientCA string
	// WebhookClientNames are the names in certificates of these authorities that may; empty: all of them.
	WebhookClientNames []string

	CertSource    certs.Source
	CertDir       string
	CertLifetimes certs.Lifetimes
	CertClock     clock.Clock

	// HTTP2 is off by default: CVE-2023-44487 lets a client exhaust an HTTP/2 server cheaply, and nothing here needs
	// more than HTTP/1.1.
	HTTP2 bool

	// Workers is how many objects of one kind are reconciled at the same time.
	Workers int

	// ShutdownDelay is how long webhooks are still accepted after the process was asked to stop, while it is being
	// taken out of the Service's endpoints.
	ShutdownDelay time.Duration
	// ShutdownTimeout bounds the whole shutdown.
	ShutdownTimeout time.Duration

	// Cache decides what the shared cache holds. The manager adds nothing to it.
	Cache cache.Options

	Log logr.Logger
}

// Scope is what the engine sees.
func (o Options) Scope() engine.Scope {
	return engine.Scope{Namespaces: o.WatchNamespaces, Home: o.Namespace}
}

// Lease is the timing of leader election; zero fields take the defaults of controller-runtime.
type Lease struct {
	Duration, RenewDeadline, RetryPeriod time.Duration
}

// Validate finds what is wrong before anything is started. Each message names the flag.
func (o Options) Validate() error {
	checks := []error{
		o.validateNamespace(),
		process.CheckProfiling(o.ProfilingAddress, o.ProfilingAllowRemote),
		o.validateCerts(),
		o.validateMetrics(),
		o.validateClients(),
	}
	if _, err := o.webhookURL(); err != nil {
		checks = append(checks, err)
	}
	if o.WebhookPort < 1 || o.WebhookPort > 65535 {
		checks = append(checks, fmt.Errorf("--webhook-port must be between 1 and 65535, not %d", o.WebhookPort))
	}
	if o.Workers < 1 {
		checks = append(checks, fmt.Errorf("--workers must be at least 1, not %d", o.Workers))
	}
	if o.ShutdownDelay < 0 || o.ShutdownTimeout < o.ShutdownDelay {
		checks = append(checks, fmt.Errorf("--shutdown-timeout (%s) must not be shorter than --shutdown-delay (%s), "+
			"and neither may be negative", o.ShutdownTimeout, o.ShutdownDelay))
	}
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	return nil
}

func (o Options) validateNamespace() error {
	if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		return fmt.Errorf("--namespace %q is not the name of a namespace: %s", o.Namespace, problems[0])
	}
	for _, name := range o.WatchNamespaces {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return fmt.Errorf("--watch-namespace %q is not the name of a namespace: %s", name, problems[0])
		}
	}
	for flag, name := range map[string]string{
		"--webhook-service": o.WebhookService, "--metrics-service": o.MetricsService,
	} {
		if problems := validation.IsDNS1035Label(name); name != "" && len(problems) > 0 {
			return fmt.Errorf("%s %q is not the name of a Service: %s", flag, name, problems[0])
		}
	}
	for _, name := range o.WebhookAliases {
		if problems := validation.IsDNS1035Label(name); len(problems) > 0 {
			return fmt.Errorf("--webhook-alias %q is not the name of a Service: %s", name, problems[0])
		}
	}
	return nil
}

func (o Options) validateCerts() error {
	if !slices.Contains(certs.Sources, o.CertSource) {
		return fmt.Errorf("--webhook-cert-source %q is unknown; use one of %s", o.CertSource, joined(certs.Sources))
	}
	switch {
	case o.CertSource != certs.Self && o.CertDir == "":
		return fmt.Errorf("--webhook-cert-source=%s needs --webhook-cert-dir", o.CertSource)
	case o.CertSource == certs.Self && o.CertDir != "":
		return errors.New("--webhook-cert-dir is only read with --webhook-cert-source=dir or cert-manager")
	}
	return nil
}

func joined(sources []certs.Source) string {
	var names []string
	for _, s := range sources {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// validateMetrics looks for the files, so that a wrong call is told from a failed run.
func (o Options) validateMetrics() error {
	if o.MetricsCertDir == "" {
		return nil
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		if _, err := os.Stat(filepath.Join(o.MetricsCertDir, name)); err != nil {
			return fmt.Errorf("--metrics-cert-dir: %w", err)
		}
	}
	return nil
}

// validateClients reads the file once, so that a wrong path is told of at the start and not by webhooks that fail.
func (o Options) validateClients() error {
	if o.WebhookClientCA == "" {
		if len(o.WebhookClientNames) > 0 {
			return errors.New("--webhook-client-names needs --webhook-client-ca")
		}
		return nil
	}
	if _, err := readPool(o.WebhookClientCA); err != nil {
		return fmt.Errorf("--webhook-client-ca: %w", err)
	}
	return nil
}

// webhookURL is nil when the API server goes through the Service.
func (o Options) webhookURL() (*url.URL, error) {
	if o.WebhookURL == "" {
		return nil, nil
	}
	u, err := url.Parse(strings.TrimSuffix(o.WebhookURL, "/"))
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("--webhook-url must look like https://host:port, without user, query or fragment")
	}
	return u, nil
}
