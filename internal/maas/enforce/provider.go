// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/pflag"
)

// OIDCOptions are an identity provider as a command line names it: the same wherever its people may come.
type OIDCOptions struct {
	Issuer, ClientID, CA string
	Refresh              time.Duration
}

// Register flags.
func (o *OIDCOptions) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.Issuer, "oidc-issuer-url", "", "address of an identity provider (OpenID Connect) whose tokens are accepted besides those of the cluster")
	flags.StringVar(&o.ClientID, "oidc-client-id", "", "client of that provider for which tokens must have been made out")
	flags.StringVar(&o.CA, "oidc-ca-file", "", "file with the authorities of its certificate (default: those of the system)")
	flags.DurationVar(&o.Refresh, "oidc-refresh", 5*time.Minute, "how long the provider's keys are believed")
}

// Check refuses what cannot be meant.
func (o *OIDCOptions) Check() error {
	switch {
	case (o.Issuer == "") != (o.ClientID == ""):
		return errors.New("--oidc-issuer-url and --oidc-client-id go together")
	case o.Issuer == "":
		return nil
	case o.Refresh < leastRefresh || o.Refresh > 24*time.Hour:
		return fmt.Errorf("--oidc-refresh must be between %s and 24h", leastRefresh)
	}
	_, err := NewOIDC(nil, o.Issuer, o.ClientID, o.Refresh, nil)
	if err != nil {
		return fmt.Errorf("--oidc-issuer-url: %w", err)
	}
	return nil
}

// Tokens are those of the provider, if there is one, and of others.
func (o *OIDCOptions) Tokens(others Tokens) (Tokens, error) {
	if o.Issuer == "" {
		return others, nil
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		text, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("read the authorities of the identity provider: %w", err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate", o.CA)
		}
	}
	client := &http.Client{Timeout: askTime, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, IdleConnTimeout: time.Minute}}
	return NewOIDC(client, o.Issuer, o.ClientID, o.Refresh, others)
}
