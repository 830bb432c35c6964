// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestLedgerIsBoundedByWhatLives(t *testing.T) {
	l := newLedger()
	key := childKey{gvk: schema.GroupVersionKind{Kind: "Service"}, NamespacedName: types.NamespacedName{Name: "a"}}
	l.put("owner", key, entry{uid: "1", digest: "d"})

	l.left("owner", key, "0") // word of an earlier child of the same name
	if e, ok := l.get("owner", key); !ok || e.gone {
		t.Errorf("an old deletion was believed: %+v", e)
	}
	l.left("owner", key, "1")
	if e, _ := l.get("owner", key); !e.gone {
		t.Errorf("a foreign deletion must be remembered: %+v", e)
	}
	l.put("owner", key, entry{uid: "2", deleted: true})
	l.left("owner", key, "2")
	if l.size() != 0 {
		t.Error("our own deletion need not be remembered")
	}

	l.put("owner", key, entry{uid: "3"})
	l.forgetKind(func(k childKey) bool { return k.gvk.Kind == "Service" })
	if l.size() != 0 {
		t.Error("the kind was not forgotten")
	}
	l.put("owner", key, entry{uid: "4"})
	l.forgetOwner("owner")
	if len(l.byOwner) != 0 {
		t.Error("the owner was not forgotten")
	}
}

func TestOlder(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{{"9", "10", true}, {"10", "9", false}, {"10", "10", false}, {"x", "10", false}, {"", "10", false}} {
		if got := older(tc.a, tc.b); got != tc.want {
			t.Errorf("older(%q, %q) = %v", tc.a, tc.b, got)
		}
	}
}
