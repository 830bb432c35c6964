// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

const (
	dialTimeout      = 5 * time.Second
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 5 * time.Second
	mostMessage      = 64 << 20
	// testKey is read, never written: it shows that etcd answers and lets us in.
	testKey = "/__DUMMY_KEY_FOR_TESTING_CONNECTION"
)

// ErrConflict says that somebody else changed a record first.
var ErrConflict = errors.New("the record was changed meanwhile")

// ErrReadOnly says that models and virtual models may not be written. Instances still announce themselves.
var ErrReadOnly = errors.New("the store is read-only (KV_READ_ONLY)")

// Tables of a service.
const (
	Registry  = "registry"
	VModels   = "vmodels"
	Instances = "instances"
	Settings  = "config"
)

// Store is a connection to etcd and the part of its keys that belongs to one service.
type Store struct {
	client   *clientv3.Client
	prefix   string // with a slash at its end
	readOnly bool
	log      *slog.Logger
}

// Options say which keys are ours.
type Options struct {
	// Prefix is MM_KVSTORE_PREFIX and Service MM_SERVICE_NAME.
	Prefix, Service string
	ReadOnly        bool
	Log             *slog.Logger
}

// Prefix is where all tables of a service lie.
func (c Config) Prefix(prefix, service string) string {
	return c.RootPrefix + "/" + strings.Trim(prefix, "/") + "/" + service + "/"
}

// Open connects; Check tells whether anybody answers.
func Open(c Config, o Options) (*Store, error) {
	config := clientv3.Config{
		Endpoints: c.Endpoints, Username: c.User, Password: c.Password, TLS: c.TLS,
		DialTimeout: dialTimeout, DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout,
		MaxCallRecvMsgSize: mostMessage, Logger: zap.NewNop(),
	}
	if c.Authority != "" {
		config.DialOptions = append(config.DialOptions, grpc.WithAuthority(c.Authority))
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(c.Endpoints, ","), err)
	}
	return &Store{client: client, prefix: c.Prefix(o.Prefix, o.Service), readOnly: o.ReadOnly, log: o.Log}, nil
}

// Close ends the connection. Leases end by themselves.
func (s *Store) Close() error { return s.client.Close() }

// Check reads a key that need not exist.
func (s *Store) Check(ctx context.Context) error {
	_, err := s.client.Get(ctx, s.prefix[:len(s.prefix)-1]+testKey)
	if err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	return nil
}

// ReadOnly tells whether writes are refused.
func (s *Store) ReadOnly() bool { return s.readOnly }

// Key is the whole key of a record.
func (s *Store) Key(table, id string) string { return s.prefix + table + "/" + id }

// Any is the revision of a write that does not care what is there.
const Any int64 = -1

// Write is one step of a transaction: Value nil removes the record. Revision is what the record must have now: 0 that it
// must not exist.
type Write struct {
	Table, ID string
	Revision  int64
	Value     []byte
	Lease     clientv3.LeaseID
}

// Commit does all writes or none, and returns the revision that the written records have now. ErrConflict says that a
// record was not as expected.
func (s *Store) Commit(ctx context.Context, writes ...Write) (int64, error) {
	var conditions []clientv3.Cmp
	var steps []clientv3.Op
	for _, w := range writes {
		if s.readOnly && (w.Table == Registry || w.Table == VModels) {
			return 0, ErrReadOnly
		}
		key := s.Key(w.Table, w.ID)
		if w.Revision != Any {
			conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(key), "=", w.Revision))
		}
		switch {
		case w.Value == nil:
			steps = append(steps, clientv3.OpDelete(key))
		case w.Lease != 0:
			steps = append(steps, clientv3.OpPut(key, string(w.Value), clientv3.WithLease(w.Lease)))
		default:
			steps = append(steps, clientv3.OpPut(key, string(w.Value)))
		}
	}
	answer, err := s.client.Txn(ctx).If(conditions...).Then(steps...).Commit()
	if err != nil {
		return 0, fmt.Errorf("write to etcd: %w", err)
	}
	if !answer.Succeeded {
		return 0, ErrConflict
	}
	return answer.Header.Revision, nil
}

// Read gets one record from etcd itself. The revision of one that does not exist is 0.
func (s *Store) Read(ctx context.Context, table, id string) ([]byte, int64, error) {
	answer, err := s.client.Get(ctx, s.Key(table, id))
	if err != nil {
		return nil, 0, fmt.Errorf("read from etcd: %w", err)
	}
	if len(answer.Kvs) == 0 {
		return nil, 0, nil
	}
	return answer.Kvs[0].Value, answer.Kvs[0].ModRevision, nil
}
