// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/store"
	"github.com/modelplane/modelplane/internal/modelmesh/mesh/track"
	"github.com/modelplane/modelplane/internal/version"
)

// unit is what sizes are counted in.
const unit = 8192

// leastRPM is the fewest calls a minute for which a model may get another copy.
const leastRPM = 10

// Settings is what the environment says. Names of variables are those that pods of multi-model runtimes have.
type Settings struct {
	Service, Instance, Version, Location, Zone string
	Labels                                     []string

	Port, PeerPort, ProbePort, PreStopPort int
	// Host is where peers reach this process.
	Host string

	Store       store.Config
	StorePrefix string
	ReadOnly    bool

	// RuntimeTarget is where models are managed, ServingTarget where they answer.
	RuntimeTarget, ServingTarget string

	MaxMessage, MaxHeaders         int
	MessageMemory                  int64 // bytes that messages under way may take; 0 follows from the container's memory
	MaxConnectionAge, MaxAgeGrace  time.Duration
	TypeConstraints, Dataplane     source
	AutoRegister                   source
	DefaultOwner                   string
	ShutdownTimeout                time.Duration
	LogEachInvoke, SendDestination bool
	LogHeaders                     map[string]string
	Metrics                        metricsSettings
	PayloadProcessors              []string
	PayloadThreads, PayloadQueue   int
	TLS                            tlsSettings
	FailFast                       bool

	LoadFailureExpiry time.Duration
	ScaleUpRPM        int64
	MultiParallelism  int
	MaxInflight       int
	LatencyPercent    int
	Periods           Periods
}

// Periods are how often things happen that nobody waits for.
type Periods struct {
	Publish, Rate, Janitor, Reaper, Runtime, Lease time.Duration
	// MissingFor is how long an instance may be away before its registrations go.
	MissingFor time.Duration
	// SecondCopyAfter and SecondCopyBefore are how long ago a model must have been used before for a second copy.
	SecondCopyAfter, SecondCopyBefore time.Duration
	// ThirdCopyFor is how long copies beyond the second stay at least.
	ThirdCopyFor time.Duration
	// UnloadRetry is the pause between attempts to unload.
	UnloadRetry time.Duration
	// MinChurn is how long a model may expect to stay; 0 follows from the time that loads take.
	MinChurn time.Duration
	// StartTimeout is how long the runtime may take to be ready.
	StartTimeout time.Duration
}

// DefaultPeriods are those that users know.
func DefaultPeriods() Periods {
	return Periods{
		Publish: 40 * time.Second, Rate: 10 * time.Second, Janitor: 6 * time.Minute, Reaper: 7 * time.Minute,
		Runtime: 2 * time.Second, Lease: 20 * time.Second, MissingFor: 10 * time.Minute,
		SecondCopyAfter: 7 * time.Minute, SecondCopyBefore: 40 * time.Minute, ThirdCopyFor: track.QuietAfterLoad, UnloadRetry: 10 * time.Second,
		StartTimeout: 3 * time.Minute,
	}
}

// source is text in a variable, or in a file that is read again.
type source struct{ text, path string }

func (s source) set() bool { return s.text != "" || s.path != "" }

func (s source) read() ([]byte, error) {
	if s.path == "" {
		return []byte(s.text), nil
	}
	raw, err := os.ReadFile(s.path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.path, err)
	}
	return raw, nil
}

// environment reads variables and remembers the first that is wrong.
type environment struct {
	get func(string) string
	err error
}

func (e *environment) text(name, fallback string) string {
	if value := e.get(name); value != "" {
		return value
	}
	return fallback
}

func (e *environment) number(name string, fallback, least, most int64) int64 {
	value := e.get(name)
	if value == "" {
		return fallback
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if (err != nil || n < least || n > most) && e.err == nil {
		e.err = fmt.Errorf("%s is %q; it must be a number from %d to %d", name, value, least, most)
	}
	return n
}

func (e *environment) truth(name string, fallback bool) bool {
	value := e.get(name)
	if value == "" {
		return fallback
	}
	b, err := strconv.ParseBool(value)
	if err != nil && e.err == nil {
		e.err = fmt.Errorf("%s is %q; it must be true or false", name, value)
	}
	return b
}

func (e *environment) port(name string, fallback int64) int {
	return int(e.number(name, fallback, 1, 65535))
}

func (e *environment) source(name string) source {
	return source{text: e.get(name), path: e.get(name + "_PATH")}
}

// FromEnvironment understands all variables, or names the one that is wrong.
func FromEnvironment(get func(string) string) (Settings, error) {
	e := &environment{get: get}
	s := Settings{
		Service: e.text("MM_SERVICE_NAME", ""), Instance: instanceID(e), Version: version.Get().Version,
		Location: e.text("MM_LOCATION", ""), Zone: e.text("MM_ZONE", ""), Labels: list(e.get("MM_LABELS"), ","),
		Port: e.port("MM_SVC_GRPC_PORT", 8033), PeerPort: e.port("MM_PEER_PORT", 8080), ProbePort: e.port("MM_PROBE_PORT", 8089),
		PreStopPort: e.port("MM_PRESTOP_WAIT_PORT", 8090), Host: e.text("WKUBE_POD_IPADDR", "127.0.0.1"),
		StorePrefix: e.text("MM_KVSTORE_PREFIX", "tas-runtime"), ReadOnly: e.truth("KV_READ_ONLY", false),
		MaxMessage:      int(e.number("MM_SVC_GRPC_MAX_MSG_SIZE", 16<<20, 1<<10, 2<<30-1)),
		MessageMemory:   e.number("MM_MESSAGE_MEMORY_BYTES", 0, 0, 1<<50),
		MaxHeaders:      int(e.number("MM_SVC_GRPC_MAX_HEADERS_SIZE", 0, 0, 64<<20)),
		TypeConstraints: e.source("MM_TYPE_CONSTRAINTS"), Dataplane: e.source("MM_DATAPLANE_CONFIG"), AutoRegister: e.source("MM_AUTO_REGISTER_MODELS"),
		DefaultOwner:    e.text("MM_DEFAULT_VMODEL_OWNER", ""),
		ShutdownTimeout: time.Duration(e.number("SHUTDOWN_TIMEOUT_MS", 90_000, 0, 86_400_000)) * time.Millisecond,
		LogEachInvoke:   e.truth("MM_LOG_EACH_INVOKE", false), SendDestination: e.truth("MM_SEND_DEST_ID", false),
		PayloadProcessors: strings.Fields(e.get("MM_PAYLOAD_PROCESSORS")),
		PayloadThreads:    int(e.number("MM_PAYLOAD_PROCESSORS_THREADS", 2, 1, 256)),
		PayloadQueue:      int(e.number("MM_PAYLOAD_PROCESSORS_CAPACITY", 64, 1, 1<<20)),
		LoadFailureExpiry: time.Duration(e.number("MM_LOAD_FAILURE_EXPIRY_TIME_MS", 900_000, 1, 1<<40)) * time.Millisecond,
		FailFast:          e.truth("MM_FAILFAST_UPGRADE_ENABLED", true),
		ScaleUpRPM:        e.number("MM_SCALEUP_RPM_THRESHOLD", 2000, leastRPM, 1<<40),
		MultiParallelism:  int(e.number("MM_MULTI_PARALLELISM", 4, 1, mostSeveral)),
		MaxInflight:       int(e.number("MM_MAX_INFLIGHT_PER_MODEL_COPY", 0, -1, 1<<20)),
		LatencyPercent:    int(e.number("MM_CONC_SCALEUP_BANDWIDTH_PCT", 90, 10, 200)),
		Periods:           DefaultPeriods(),
	}
	s.MaxConnectionAge = time.Duration(e.number("MM_SVC_GRPC_MAX_CONNECTION_AGE_SECS", 0, 0, 1<<30)) * time.Second
	s.MaxAgeGrace = time.Duration(e.number("MM_SVC_GRPC_MAX_CONNECTION_AGE_GRACE_SECS", 0, 0, 1<<30)) * time.Second
	s.RuntimeTarget = e.target("INTERNAL_GRPC_SOCKET_PATH", "INTERNAL_GRPC_PORT", "8085")
	s.ServingTarget = e.target("INTERNAL_SERVING_GRPC_SOCKET_PATH", "INTERNAL_SERVING_GRPC_PORT", "")
	if s.ServingTarget == "" {
		s.ServingTarget = s.RuntimeTarget
	}
	s.TLS = e.tls()
	e.periods(&s.Periods)
	var err error
	if s.Metrics, err = parseMetrics(e.get("MM_METRICS"), e.get("MM_INFO_METRICS")); err != nil && e.err == nil {
		e.err = err
	}
	if s.LogHeaders, err = parseLogHeaders(e.get("MM_LOG_REQUEST_HEADERS")); err != nil && e.err == nil {
		e.err = err
	}
	if e.err != nil {
		return s, e.err
	}
	if s.Service == "" {
		return s, errors.New("MM_SERVICE_NAME is not set; it names the Service whose pods are one mesh")
	}
	s.Store, err = store.Parse(e.get("KV_STORE"))
	return s, err
}

// periods lets tests, and whoever must, change how often things happen.
func (e *environment) periods(p *Periods) {
	for name, into := range map[string]*time.Duration{
		"MM_PUBLISH_PERIOD": &p.Publish, "MM_RATE_PERIOD": &p.Rate, "MM_JANITOR_PERIOD": &p.Janitor, "MM_REAPER_PERIOD": &p.Reaper,
		"MM_RUNTIME_STATUS_PERIOD": &p.Runtime, "MM_LEASE_TTL": &p.Lease, "MM_MISSING_INSTANCE_AFTER": &p.MissingFor,
		"MM_SECOND_COPY_AFTER": &p.SecondCopyAfter, "MM_SECOND_COPY_BEFORE": &p.SecondCopyBefore, "MM_THIRD_COPY_FOR": &p.ThirdCopyFor,
		"MM_UNLOAD_RETRY_PERIOD": &p.UnloadRetry, "MM_MIN_CHURN_AGE": &p.MinChurn, "MM_RUNTIME_START_TIMEOUT": &p.StartTimeout,
	} {
		value := e.get(name)
		if value == "" {
			continue
		}
		d, err := time.ParseDuration(value)
		if (err != nil || d <= 0) && e.err == nil {
			e.err = fmt.Errorf("%s is %q; it must be a duration, for example 10s", name, value)
		}
		*into = d
	}
}

// target is where a runtime beside us listens.
func (e *environment) target(socket, port, fallback string) string {
	if path := e.get(socket); path != "" {
		return "unix:" + path
	}
	value := e.text(port, fallback)
	if value == "" {
		return ""
	}
	if n, err := strconv.Atoi(value); (err != nil || n < 1 || n > 65535) && e.err == nil {
		e.err = fmt.Errorf("%s is %q; it must be a port", port, value)
	}
	return "passthrough:///" + net.JoinHostPort("127.0.0.1", value)
}

// idLength is how much of a pod's name is an instance's id: the hashes of ReplicaSet and pod.
const idLength = 12

func instanceID(e *environment) string {
	name := e.text("WKUBE_POD_NAME", e.get("HOSTNAME"))
	if name == "" {
		name, _ = os.Hostname()
	}
	return name[max(len(name)-idLength, 0):]
}

func list(text, separator string) (out []string) {
	for word := range strings.SplitSeq(text, separator) {
		if word = strings.TrimSpace(word); word != "" {
			out = append(out, word)
		}
	}
	return out
}
