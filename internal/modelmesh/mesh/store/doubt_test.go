// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// late is etcd behind a connection that ends before the answer to a write. The write has come through by then, or comes later.
type late struct {
	clientv3.KV
	lose, hold bool
	held       func() (*clientv3.TxnResponse, error)
}

type lateTxn struct {
	clientv3.Txn
	kv *late
}

func (l *late) Txn(context.Context) clientv3.Txn {
	return &lateTxn{l.KV.Txn(context.Background()), l} // the server does not know that the caller has gone
}

func (t *lateTxn) If(conditions ...clientv3.Cmp) clientv3.Txn {
	t.Txn = t.Txn.If(conditions...)
	return t
}

func (t *lateTxn) Then(steps ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Then(steps...)
	return t
}

func (t *lateTxn) Commit() (*clientv3.TxnResponse, error) {
	switch {
	case t.kv.hold:
		t.kv.hold, t.kv.held = false, t.Txn.Commit
		return nil, context.DeadlineExceeded
	case t.kv.lose:
		t.kv.lose = false
		_, err := t.Txn.Commit()
		return nil, errors.Join(context.DeadlineExceeded, err)
	}
	return t.Txn.Commit()
}

// TestLostAnswers: whoever does not know whether a write has come through does not believe what the mirror says of it, and what is
// written after that stays.
func TestLostAnswers(t *testing.T) {
	endpoint := etcd(t)
	s := open(t, endpoint, false)
	kv := &late{KV: s.client.KV}
	s.client.KV = kv
	table, ctx := NewTable(s, Registry, ModelCodec, nil), t.Context()
	create := func(*Model) (*Model, bool, error) {
		m, err := ModelCodec.Decode([]byte(`{"type":"t"}`))
		return m, true, err
	}
	copied := func(now *Model) (*Model, bool, error) {
		next := now.Clone()
		next.SetCopy(Copy{Instance: "here", Began: 1})
		return next, true, nil
	}
	without := func(now *Model) (*Model, bool, error) {
		if _, there := now.Copy("here"); !there {
			return now, false, nil
		}
		next := now.Clone()
		next.RemoveCopy("here")
		return next, true, nil
	}
	for _, lost := range []struct {
		how string
		set func()
	}{
		{"has come through", func() { kv.lose = true }},
		{"comes later", func() { kv.hold = true }},
	} {
		if _, err := table.Update(ctx, lost.how, create); err != nil {
			t.Fatal(err)
		}
		lost.set()
		if _, err := table.Update(ctx, lost.how, copied); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a write whose answer is lost: %v", err)
		}
		if _, err := table.Update(ctx, lost.how, without); err != nil {
			t.Fatal(err)
		}
		if kv.held != nil {
			if _, err := kv.held(); err != nil {
				t.Fatal(err)
			}
			kv.held = nil
		}
		row, there, err := table.Refresh(ctx, lost.how)
		if err != nil || !there {
			t.Fatalf("%t, %v", there, err)
		}
		if _, copied := row.Value.Copy("here"); copied {
			t.Errorf("a write whose answer was lost and that %s is there after it was taken back", lost.how)
		}
		if len(table.doubts) != 0 {
			t.Errorf("there are still doubts: %v", table.doubts)
		}
	}
}
