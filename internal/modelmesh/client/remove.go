// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/modelplane/modelplane/internal/modelmesh/model"
)

// removeRecords takes a name out of a mesh of which no pod runs, so that it does not come back with the next one. It does
// what the mesh itself would: the models of the name are released, and those go that nobody else has and that were made for
// a name.
func removeRecords(ctx context.Context, m Mesh, name string, source model.Source) error {
	kv, err := m.Etcd.connect()
	if err != nil {
		return err
	}
	defer kv.Close() //nolint:errcheck // nothing can be done
	const attempts = 3
	for range attempts {
		done, err := releaseOnce(ctx, kv, m, name, source)
		if err != nil {
			return fmt.Errorf("etcd, where the records of the mesh are, does not answer: %w", err)
		}
		if done {
			return nil
		}
	}
	return errors.New("the records of the mesh change all the time")
}

// releaseOnce is false when somebody else was faster.
func releaseOnce(ctx context.Context, kv *clientv3.Client, m Mesh, name string, source model.Source) (bool, error) {
	key := m.Etcd.table(m.Namespace, vmodels) + name
	have, err := kv.Get(ctx, key)
	if err != nil || len(have.Kvs) == 0 {
		return err == nil, err
	}
	record := vmodelRecord{}
	if unread := json.Unmarshal(have.Kvs[0].Value, &record); unread != nil || record.Owner != source {
		return true, nil //nolint:nilerr // what cannot be read is not ours
	}
	when := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", have.Kvs[0].ModRevision)}
	then := []clientv3.Op{clientv3.OpDelete(key)}
	ids := []string{record.Active}
	if record.Target != record.Active {
		ids = append(ids, record.Target)
	}
	for _, id := range ids {
		if id == "" {
			continue
		}
		at := m.Etcd.table(m.Namespace, registry) + id
		found, err := kv.Get(ctx, at)
		if err != nil {
			return false, err
		}
		if len(found.Kvs) == 0 {
			continue
		}
		when = append(when, clientv3.Compare(clientv3.ModRevision(at), "=", found.Kvs[0].ModRevision))
		then = append(then, released(at, found.Kvs[0].Value)...)
	}
	answer, err := kv.Txn(ctx).If(when...).Then(then...).Commit()
	if err != nil {
		return false, err
	}
	return answer.Succeeded, nil
}

// released is what becomes of a model's record when a name lets go of it. Members that we do not know stay.
func released(key string, value []byte) []clientv3.Op {
	record := map[string]json.RawMessage{}
	if json.Unmarshal(value, &record) != nil {
		return nil
	}
	refs, _ := strconv.Atoi(string(record["refs"]))
	if refs--; refs <= 0 && string(record["autoDel"]) == "true" {
		return []clientv3.Op{clientv3.OpDelete(key)}
	}
	if delete(record, "refs"); refs > 0 {
		record["refs"] = json.RawMessage(strconv.Itoa(refs))
	}
	raw, err := json.Marshal(record)
	if err != nil {
		return nil
	}
	return []clientv3.Op{clientv3.OpPut(key, string(raw))}
}
