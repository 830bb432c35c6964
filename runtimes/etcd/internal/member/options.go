// SPDX-License-Identifier: Apache-2.0

// Package member runs one member of an etcd cluster in a pod of a StatefulSet. It keeps the certificates in one Secret and
// tells the way to etcd in another, finds out whether it founds a cluster, joins one or takes its place in it again, and lets
// etcd itself do the rest.
package member

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/modelplane/modelplane/runtimes/etcd/internal/secrets"
)

// most members that a cluster can have; certificates are good for all of them.
const most = 3

// keeper is where Secrets are.
type keeper interface {
	Get(ctx context.Context, name string) (secrets.Secret, error)
	Put(ctx context.Context, name string, read secrets.Secret, data map[string][]byte) (secrets.Secret, error)
}

// Options of a member.
type Options struct {
	Name        string // of the pod, which ends in its number
	Namespace   string
	Service     string // by which clients find the members
	Peers       string // the headless Service by which members find each other
	Replicas    int    // members of a cluster that is founded
	Dir         string // for etcd's data
	Run         string // for certificates, in memory
	Secret      string // with the certificates
	Connection  string // the Secret that tells clients the way
	RootPrefix  string // of all keys
	TLS         bool
	Quota       int64 // bytes that etcd's file may take
	LogLevel    string
	secrets     keeper
	now         func() time.Time
	address     func(ordinal int) endpoints // where a member is; tests have several on one machine
	pause       time.Duration               // between tries
	look        time.Duration               // between looks at the certificates
	careless    bool                        // do not wait for the disk
	metricsPort string
}

// endpoints of one member: what it listens on, and by which name others reach it.
type endpoints struct{ listen, host, client, peer string }

// Parse reads the arguments of `modelplane-etcd serve`.
func Parse(args []string, stderr io.Writer) (Options, error) {
	o := Options{now: time.Now, pause: 2 * time.Second, look: time.Hour, metricsPort: "2381"}
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.Name, "name", "", "name of the pod")
	flags.StringVar(&o.Namespace, "namespace", "", "namespace of the pod")
	flags.StringVar(&o.Service, "service", "", "Service by which clients find the members")
	flags.StringVar(&o.Peers, "peer-service", "", "headless Service by which members find each other")
	flags.IntVar(&o.Replicas, "replicas", 1, "members of a cluster that is founded, 1 or 3")
	flags.StringVar(&o.Dir, "data-dir", "/data", "directory of the data")
	flags.StringVar(&o.Run, "run-dir", "/run/etcd", "directory in memory for certificates")
	flags.StringVar(&o.Secret, "secret", "", "Secret that keeps the certificates and who the members are")
	flags.StringVar(&o.Connection, "connection-secret", "model-serving-etcd", "Secret that tells clients the way")
	flags.StringVar(&o.RootPrefix, "root-prefix", "modelmesh-serving", "what all keys of clients begin with")
	flags.BoolVar(&o.TLS, "tls", true, "encrypt, and let in only those who show a certificate")
	flags.Int64Var(&o.Quota, "quota-bytes", 2<<30, "bytes that the database may take")
	flags.StringVar(&o.LogLevel, "log-level", "warn", "debug, info, warn or error")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is not expected", flags.Arg(0))
	}
	for name, value := range map[string]string{"name": o.Name, "namespace": o.Namespace, "service": o.Service, "peer-service": o.Peers, "secret": o.Secret} {
		if value == "" {
			return o, fmt.Errorf("--%s is missing", name)
		}
	}
	if o.Replicas != 1 && o.Replicas != most {
		return o, errors.New("--replicas must be 1 or 3")
	}
	if _, err := o.ordinal(); err != nil {
		return o, err
	}
	o.address = o.inPods
	client, err := secrets.InCluster(o.Namespace)
	o.secrets = client
	return o, err
}

// inPods is where members are in a cluster of Kubernetes.
func (o Options) inPods(ordinal int) endpoints {
	return endpoints{listen: "0.0.0.0", host: o.podName(ordinal) + "." + o.Peers + "." + o.Namespace + ".svc", client: "2379", peer: "2380"}
}

var numbered = regexp.MustCompile(`^(.+)-(\d+)$`)

func (o Options) ordinal() (int, error) {
	parts := numbered.FindStringSubmatch(o.Name)
	if parts == nil {
		return 0, fmt.Errorf("the name %q has no number at its end", o.Name)
	}
	n, err := strconv.Atoi(parts[2])
	if err != nil || n >= most {
		return 0, fmt.Errorf("%s is one too many: a cluster has %d members at most", o.Name, most)
	}
	return n, nil
}

// podName of a member of the same cluster.
func (o Options) podName(ordinal int) string {
	return numbered.ReplaceAllString(o.Name, "$1") + "-" + strconv.Itoa(ordinal)
}

func (o Options) scheme() string {
	if o.TLS {
		return "https"
	}
	return "http"
}

func (o Options) clientURL(ordinal int) string {
	at := o.address(ordinal)
	return o.scheme() + "://" + at.host + ":" + at.client
}

func (o Options) peerURL(ordinal int) string {
	at := o.address(ordinal)
	return o.scheme() + "://" + at.host + ":" + at.peer
}

// serviceURL is what clients of all namespaces are told.
func (o Options) serviceURL() string {
	return o.scheme() + "://" + o.Service + "." + o.Namespace + ".svc:2379"
}

// hosts are all names by which members are called.
func (o Options) hosts() []string {
	hosts := []string{"localhost", "127.0.0.1", "::1", o.Service, o.Service + "." + o.Namespace, o.Service + "." + o.Namespace + ".svc"}
	for i := range most {
		hosts = append(hosts, o.inPods(i).host)
	}
	return hosts
}

func (o Options) file(name string) string { return filepath.Join(o.Run, name) }

// ConnectionFile is where the way to the member of this very pod is written down, for those who look after it.
func ConnectionFile(run string) string { return filepath.Join(run, "etcd_connection") }

// cluster is how etcd is told of members.
func (o Options) cluster(size int) string {
	var out []string
	for i := range size {
		out = append(out, o.podName(i)+"="+o.peerURL(i))
	}
	return strings.Join(out, ",")
}
