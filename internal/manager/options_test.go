// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/certs"
)

func valid() Options {
	return Options{
		Namespace: "modelplane-system", WebhookService: "modelplane-webhook", WebhookPort: 9443, CertSource: certs.Self,
		Workers: 10, ShutdownTimeout: time.Second,
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Options)
		want string // part of the error; empty: none
	}{
		{name: "as it should be", edit: func(*Options) {}},
		{name: "namespace", edit: func(o *Options) { o.Namespace = "No Namespace" }, want: `--namespace "No Namespace"`},
		{name: "service", edit: func(o *Options) { o.WebhookService = "a.b" }, want: `--webhook-service "a.b"`},
		{name: "alias", edit: func(o *Options) { o.WebhookAliases = []string{"maas-controller-webhook-service"} }},
		{name: "alias that is no name", edit: func(o *Options) { o.WebhookAliases = []string{"fine", "a.b"} }, want: `--webhook-alias "a.b"`},
		{name: "metrics service", edit: func(o *Options) { o.MetricsService = "1" }, want: `--metrics-service "1"`},
		{name: "profiling on loopback", edit: func(o *Options) { o.ProfilingAddress = "127.0.0.1:6060" }},
		{name: "profiling on loopback, IPv6", edit: func(o *Options) { o.ProfilingAddress = "[::1]:6060" }},
		{name: "profiling on localhost", edit: func(o *Options) { o.ProfilingAddress = "localhost:6060" }},
		{name: "profiling on all addresses", edit: func(o *Options) { o.ProfilingAddress = ":6060" }, want: "--profiling-allow-remote"},
		{name: "profiling on any IPv4", edit: func(o *Options) { o.ProfilingAddress = "0.0.0.0:6060" }, want: "--profiling-allow-remote"},
		{name: "profiling on a name", edit: func(o *Options) { o.ProfilingAddress = "host:6060" }, want: "--profiling-allow-remote"},
		{name: "profiling on nonsense", edit: func(o *Options) { o.ProfilingAddress = "6060" }, want: "not host:port"},
		{name: "profiling for all, asked for", edit: func(o *Options) { o.ProfilingAddress, o.ProfilingAllowRemote = ":6060", true }},
		{name: "certificate source", edit: func(o *Options) { o.CertSource = "vault" }, want: "self, dir, cert-manager"},
		{name: "directory missing", edit: func(o *Options) { o.CertSource = certs.Dir }, want: "needs --webhook-cert-dir"},
		{name: "directory unused", edit: func(o *Options) { o.CertDir = "certs" }, want: "--webhook-cert-dir is only read"},
		{name: "metrics directory empty", edit: func(o *Options) { o.MetricsCertDir = t.TempDir() }, want: "--metrics-cert-dir"},
		{name: "URL", edit: func(o *Options) { o.WebhookURL = "https://10.0.0.1:9443/" }},
		{name: "URL without TLS", edit: func(o *Options) { o.WebhookURL = "http://host" }, want: "--webhook-url"},
		{name: "URL with a password", edit: func(o *Options) { o.WebhookURL = "https://user:hunter2@host" }, want: "--webhook-url"},
		{name: "URL with a query", edit: func(o *Options) { o.WebhookURL = "https://host?a=b" }, want: "--webhook-url"},
		{name: "no URL at all", edit: func(o *Options) { o.WebhookURL = "host:9443" }, want: "--webhook-url"},
		{name: "port", edit: func(o *Options) { o.WebhookPort = 70000 }, want: "--webhook-port"},
		{name: "workers", edit: func(o *Options) { o.Workers = 0 }, want: "--workers"},
		{name: "delay longer than timeout", edit: func(o *Options) { o.ShutdownDelay = time.Minute }, want: "--shutdown-timeout"},
		{name: "negative delay", edit: func(o *Options) { o.ShutdownDelay = -1 }, want: "--shutdown-delay"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := valid()
			c.edit(&o)
			err := o.Validate()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("unexpected error: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error = %v, want it to contain %q", err, c.want)
			case err != nil && (strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2")):
				t.Errorf("the error is not fit to print: %v", err)
			}
		})
	}
}

func TestSelect(t *testing.T) {
	all := []Domain{{Name: "serving"}, {Name: "maas"}, {Name: "mlflow"}}
	for _, c := range []struct {
		name   string
		enable []string
		want   []string
		err    string
	}{
		{name: "all", enable: []string{"serving", "maas", "mlflow"}, want: []string{"serving", "maas", "mlflow"}},
		{name: "in the order of the list, once each", enable: []string{"mlflow", " serving", "mlflow"}, want: []string{"serving", "mlflow"}},
		{name: "misspelt", enable: []string{"servin"}, err: `no domain "servin"; choose from serving, maas, mlflow`},
		{name: "none", enable: []string{""}, err: "names no domain; choose from serving, maas, mlflow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Select(all, c.enable)
			if diff := cmp.Diff(c.want, Names(got)); diff != "" {
				t.Errorf("unexpected domains (-want +got):\n%s", diff)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error = %v, want %q", err, c.err)
			}
		})
	}
}
