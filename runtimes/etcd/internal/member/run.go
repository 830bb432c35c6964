// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/modelplane/modelplane/runtimes/etcd/internal/pki"
)

func (o Options) log(message string, args ...any) {
	slog.Info(message, append([]any{"member", o.Name}, args...)...)
}

// Run lets the member live until the context ends. It tells when etcd takes requests.
func Run(ctx context.Context, o Options, ready func()) error {
	known, err := o.keepUntilDone(ctx)
	if err != nil {
		return err
	}
	begin, err := o.plan(ctx, known)
	if err != nil {
		return err
	}
	config, err := o.config(begin)
	if err != nil {
		return err
	}
	o.log("starting etcd", "state", begin.state, "cluster", begin.cluster)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer server.Close()
	select {
	case <-ctx.Done():
		return nil
	case <-server.Server.StopNotify():
		return fmt.Errorf("etcd stopped while it was starting; the lines above say why")
	case err := <-server.Err():
		return fmt.Errorf("etcd: %w", err)
	case <-server.Server.ReadyNotify():
	}
	ready()
	return o.live(ctx, server)
}

// keepUntilDone tries again while the API server is away, or while the first member has not said who founds the cluster.
func (o Options) keepUntilDone(ctx context.Context) (record, error) {
	for {
		known, err := o.keep(ctx)
		if err == nil && (known.Founded > 0 || o.hasData()) {
			return known, nil
		}
		if err != nil {
			slog.Error("the Secrets of etcd cannot be looked after; trying again", "member", o.Name, "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return known, ctx.Err()
		case <-time.After(o.pause):
		}
	}
}

// live looks after the certificates from time to time.
func (o Options) live(ctx context.Context, server *embed.Etcd) error {
	written := false
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-server.Server.StopNotify():
			return fmt.Errorf("etcd stopped; the lines above say why")
		case err := <-server.Err():
			return fmt.Errorf("etcd: %w", err)
		case <-next.C:
		}
		var err error
		if written {
			_, err = o.keep(ctx)
		} else {
			err = o.joined(ctx)
			written = err == nil
		}
		next.Reset(o.look)
		if err != nil && ctx.Err() == nil {
			slog.Error("the Secrets of etcd cannot be looked after; trying again", "member", o.Name, "error", err.Error())
			next.Reset(o.pause)
		}
	}
}

func (o Options) config(begin start) (*embed.Config, error) {
	c := embed.NewConfig()
	c.Name, c.Dir, c.QuotaBackendBytes, c.UnsafeNoFsync = o.Name, o.Dir, o.Quota, o.careless
	c.ClusterState, c.InitialCluster, c.InitialClusterToken = begin.state, begin.cluster, o.Namespace+"/"+o.Service
	c.LogLevel, c.LogOutputs = o.LogLevel, []string{"stderr"}
	// What is older than this, a watcher reads anew.
	c.AutoCompactionMode, c.AutoCompactionRetention = "periodic", "10m"
	c.SocketOpts = transport.SocketOpts{ReuseAddress: true}
	at := o.own()
	ordinal, err := o.ordinal()
	if err != nil {
		return nil, err
	}
	for _, into := range []struct {
		urls *[]url.URL
		text string
	}{
		{&c.ListenClientUrls, o.scheme() + "://" + at.listen + ":" + at.client},
		{&c.ListenPeerUrls, o.scheme() + "://" + at.listen + ":" + at.peer},
		{&c.AdvertiseClientUrls, o.clientURL(ordinal)},
		{&c.AdvertisePeerUrls, o.peerURL(ordinal)},
		// Health and metrics, without names or values of keys.
		{&c.ListenMetricsUrls, "http://" + at.listen + ":" + o.metricsPort},
	} {
		u, err := url.Parse(into.text)
		if err != nil {
			return nil, err
		}
		*into.urls = []url.URL{*u}
	}
	if o.TLS {
		c.TlsMinVersion = "TLS1.2"
		c.ClientTLSInfo = transport.TLSInfo{CertFile: o.file(pki.Server + ".pem"), KeyFile: o.file(pki.Server + ".pem"), TrustedCAFile: o.file("ca.pem"), ClientCertAuth: true}
		// Clients are of the same authority and must not pose as members. Addresses of pods say nothing about who they are.
		c.PeerTLSInfo = transport.TLSInfo{
			CertFile: o.file(pki.Peer + ".pem"), KeyFile: o.file(pki.Peer + ".pem"), TrustedCAFile: o.file("ca.pem"), ClientCertAuth: true,
			AllowedCNs: []string{pki.PeerName}, SkipClientSANVerify: true,
		}
	}
	return c, nil
}
