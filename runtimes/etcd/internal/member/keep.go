// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/modelplane/modelplane/runtimes/etcd/internal/connection"
	"github.com/modelplane/modelplane/runtimes/etcd/internal/pki"
	"github.com/modelplane/modelplane/runtimes/etcd/internal/secrets"
)

const membersKey = "members"

// record is what all members know of the cluster, also those whose data is lost: with how many it was founded, and who was
// ever in it. Without it, a member with an empty disk could not tell whether to found a cluster or to look for one.
type record struct {
	Founded int      `json:"founded"`
	Joined  []string `json:"joined"`
}

func (r record) has(name string) bool { return slices.Contains(r.Joined, name) }

// keep makes both Secrets say what they should, and puts the certificates where etcd reads them, at each new connection.
func (o Options) keep(ctx context.Context) (record, error) {
	stored, known, err := o.certificates(ctx)
	if err != nil {
		return known, err
	}
	if err := os.MkdirAll(o.Run, 0o700); err != nil {
		return known, err
	}
	local := connection.Config{Endpoints: o.scheme() + "://127.0.0.1:" + o.own().client, RootPrefix: o.RootPrefix}
	public := connection.Config{Endpoints: o.serviceURL(), RootPrefix: o.RootPrefix}
	if o.TLS {
		for _, name := range []string{pki.Server, pki.Peer} {
			// One file for both, so that nobody reads a key of another certificate.
			if err := replace(o.file(name+".pem"), slices.Concat(stored[name+".crt"], stored[name+".key"])); err != nil {
				return known, err
			}
		}
		if err := replace(o.file("ca.pem"), stored[pki.Authority+".crt"]); err != nil {
			return known, err
		}
		local, public = o.identified(local, stored), o.identified(public, stored)
	}
	raw, err := local.Encode()
	if err == nil {
		err = replace(ConnectionFile(o.Run), raw)
	}
	if err != nil {
		return known, err
	}
	return known, o.tell(ctx, public)
}

func (o Options) identified(c connection.Config, stored map[string][]byte) connection.Config {
	c.Certificate = string(stored[pki.Authority+".crt"])
	c.ClientCertificate, c.ClientKey = string(stored[pki.Client+".crt"]), string(stored[pki.Client+".key"])
	return c
}

func (o Options) own() endpoints {
	ordinal, _ := o.ordinal() // was asked before
	return o.address(ordinal)
}

// certificates reads the Secret, and first of all makes what it lacks. Of several members that do so at once one is the first.
func (o Options) certificates(ctx context.Context) (map[string][]byte, record, error) {
	for {
		secret, err := o.secrets.Get(ctx, o.Secret)
		if err != nil {
			return nil, record{}, err
		}
		changes := map[string][]byte{}
		if o.TLS {
			if changes, err = pki.Renew(secret.Data, o.now(), o.hosts()); err != nil {
				return nil, record{}, err
			}
		}
		known, err := readRecord(secret)
		if err != nil {
			return nil, record{}, err
		}
		if known.Founded == 0 && o.Name == o.podName(0) {
			known.Founded = o.founds()
			if changes[membersKey], err = json.Marshal(known); err != nil {
				return nil, record{}, err
			}
		}
		if len(changes) == 0 {
			return secret.Data, known, nil
		}
		secret, err = o.secrets.Put(ctx, o.Secret, secret, changes)
		if errors.Is(err, secrets.ErrConflict) {
			continue
		}
		return secret.Data, known, err
	}
}

// founds is decided by the first member alone. One that has data already has founded a cluster before the record was there, of
// nobody knows how many: whoever has no data joins it.
func (o Options) founds() int {
	if o.hasData() {
		return 1
	}
	return o.Replicas
}

func (o Options) hasData() bool {
	_, err := os.Stat(filepath.Join(o.Dir, "member"))
	return err == nil
}

func readRecord(secret secrets.Secret) (record, error) {
	var known record
	raw := secret.Data[membersKey]
	if len(raw) == 0 {
		return known, nil
	}
	if err := json.Unmarshal(raw, &known); err != nil {
		return known, fmt.Errorf("the key %s of the Secret with etcd's certificates cannot be read: %w", membersKey, err)
	}
	return known, nil
}

// joined writes down that this member is in the cluster.
func (o Options) joined(ctx context.Context) error {
	for {
		secret, err := o.secrets.Get(ctx, o.Secret)
		if err != nil {
			return err
		}
		known, err := readRecord(secret)
		if err != nil || known.has(o.Name) {
			return err
		}
		known.Joined = append(known.Joined, o.Name)
		slices.Sort(known.Joined)
		raw, err := json.Marshal(known)
		if err != nil {
			return err
		}
		if _, err = o.secrets.Put(ctx, o.Secret, secret, map[string][]byte{membersKey: raw}); !errors.Is(err, secrets.ErrConflict) {
			return err
		}
	}
}

// tell fills the Secret that clients look at.
func (o Options) tell(ctx context.Context, way connection.Config) error {
	want, err := way.Encode()
	if err != nil {
		return err
	}
	for {
		secret, err := o.secrets.Get(ctx, o.Connection)
		if err != nil || string(secret.Data[connection.Key]) == string(want) {
			return err
		}
		if _, err = o.secrets.Put(ctx, o.Connection, secret, map[string][]byte{connection.Key: want}); !errors.Is(err, secrets.ErrConflict) {
			return err
		}
	}
}

// replace leaves a reader with the old or the new content.
func replace(path string, content []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(content) {
		return nil
	}
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
