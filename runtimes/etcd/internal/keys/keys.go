// SPDX-License-Identifier: Apache-2.0

// Package keys copies what an etcd holds into a file and back. The file has keys and values and nothing of etcd's own, so
// that it fits any version, and any number of members. Keys that live as long as a process does (those with a lease) are left
// out: whoever made them makes them again.
package keys

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	format = "modelplane-etcd-backup/1"
	page   = 500
	batch  = 100 // etcd takes 128 operations at once
	// A value is at most 1.5 MiB, half as much again in base64.
	mostLine = 8 << 20
	mostFile = 1 << 30
)

// header is the first line of the file, footer the last. Without the last one the file is not whole.
type header struct {
	Format   string `json:"format"`
	Prefix   string `json:"prefix"`
	Revision int64  `json:"revision"`
}

type entry struct {
	Key   []byte `json:"key,omitempty"`
	Value []byte `json:"value,omitempty"`
	End   *int   `json:"end,omitempty"`
}

// Backup writes everything below a prefix as it was at one moment, and tells how many keys that are.
func Backup(ctx context.Context, client *clientv3.Client, prefix string, to io.Writer) (int, error) {
	out := bufio.NewWriter(to)
	lines := json.NewEncoder(out)
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	if prefix == "" {
		from, end = "\x00", "\x00"
	}
	count, revision := 0, int64(0)
	for {
		got, err := get(ctx, client, from, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(revision))
		if err != nil {
			return count, fmt.Errorf("read etcd: %w", err)
		}
		if revision == 0 {
			revision = got.Header.Revision
			if err := lines.Encode(header{format, prefix, revision}); err != nil {
				return count, err
			}
		}
		for _, kv := range got.Kvs {
			if kv.Lease != 0 {
				continue
			}
			if err := lines.Encode(entry{Key: kv.Key, Value: kv.Value}); err != nil {
				return count, err
			}
			count++
		}
		if !got.More {
			break
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
	err := errors.Join(lines.Encode(entry{End: &count}), out.Flush())
	return count, err
}

// patience with an etcd that does not answer.
const patience = 30 * time.Second

func get(ctx context.Context, client *clientv3.Client, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return client.Get(ctx, key, options...)
}

// Result of a restore.
type Result struct{ Written, Kept int }

// Restore writes what a file has. Keys that are there already stay as they are, unless they are to be overwritten. Nothing
// is written from a file that is not whole.
func Restore(ctx context.Context, client *clientv3.Client, from io.Reader, overwrite bool) (Result, error) {
	entries, err := read(from)
	if err != nil {
		return Result{}, err
	}
	var done Result
	for len(entries) > 0 {
		part := entries[:min(batch, len(entries))]
		entries = entries[len(part):]
		written, err := write(ctx, client, part, overwrite)
		done.Written, done.Kept = done.Written+written, done.Kept+len(part)-written
		if err != nil {
			return done, fmt.Errorf("write to etcd: %w; begin again: what is there already stays", err)
		}
	}
	return done, nil
}

func read(from io.Reader) ([]entry, error) {
	lines := bufio.NewScanner(io.LimitReader(from, mostFile))
	lines.Buffer(nil, mostLine)
	var head header
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &head) != nil || head.Format != format {
		return nil, errors.New("this is no file of modelplane-etcd backup")
	}
	var entries []entry
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %d of the file cannot be read", len(entries)+2)
		}
		if e.End == nil {
			entries = append(entries, e)
			continue
		}
		if *e.End != len(entries) {
			return nil, fmt.Errorf("the file has %d keys and says that it has %d", len(entries), *e.End)
		}
		return entries, nil
	}
	return nil, errors.Join(errors.New("the file ends too early: nothing was written"), lines.Err())
}

// write puts several keys in one step each where they are missing.
func write(ctx context.Context, client *clientv3.Client, part []entry, overwrite bool) (int, error) {
	var ops []clientv3.Op
	for _, e := range part {
		put := clientv3.OpPut(string(e.Key), string(e.Value))
		if !overwrite {
			put = clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(string(e.Key)), "=", 0)}, []clientv3.Op{put}, nil)
		}
		ops = append(ops, put)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return 0, err
	}
	written := 0
	for _, r := range answer.Responses {
		if txn := r.GetResponseTxn(); txn == nil || txn.Succeeded {
			written++
		}
	}
	return written, nil
}

// Under is the prefix of everything that belongs to one installation. All keys begin with a slash, also where the root does not.
func Under(root string) string {
	if root = strings.Trim(root, "/"); root == "" {
		return ""
	}
	return "/" + root + "/"
}
