// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const now = 1_700_000_000_000

func ago(d time.Duration) int64 { return now - d.Milliseconds() }

var view = View{Now: now, MinSpace: 100, ChurnAge: time.Minute}

// roomy is an instance with space, full one without.
func roomy(id string) *Instance {
	return &Instance{ID: id, Capacity: 10000, Used: 5000, Count: 50, LRUTime: ago(time.Hour), LoadThreads: 2, Version: 1}
}

func full(id string, age time.Duration) *Instance {
	i := roomy(id)
	i.Used, i.LRUTime = 9950, ago(age)
	return i
}

func with(i *Instance, change func(*Instance)) *Instance {
	change(i)
	return i
}

// TestOrder: each row is better than the next one for one reason; the ids would say otherwise.
func TestOrder(t *testing.T) {
	want := []*Instance{
		with(full("z", 2*time.Hour), func(i *Instance) { i.Version = 2 }),
		with(roomy("y"), func(i *Instance) { i.Count = 49; i.Used = 9800 }),
		with(roomy("x"), func(i *Instance) { i.Used = 4000 }),
		with(roomy("w"), func(i *Instance) { i.LRUTime = ago(2 * time.Hour) }),
		with(roomy("v"), func(i *Instance) { i.LoadThreads = 3; i.LoadsInProgress = 1 }),
		with(roomy("u"), func(i *Instance) { i.LoadThreads = 1 }),
		with(roomy("t"), func(i *Instance) { i.LoadThreads = 2; i.LoadsInProgress = 1; i.Capacity = 20000; i.Used = 15000 }),
		with(roomy("s"), func(i *Instance) { i.LoadThreads = 2; i.LoadsInProgress = 1; i.RPM = 5 }),
		with(roomy("p"), func(i *Instance) { i.LoadThreads = 2; i.LoadsInProgress = 1; i.RPM = 6 }),
		with(roomy("q"), func(i *Instance) { i.LoadThreads = 2; i.LoadsInProgress = 1; i.RPM = 6 }),
		full("o", 2*time.Hour),
		with(full("n", time.Hour), func(i *Instance) { i.Count = 5 }),
		full("m", time.Hour),
		with(full("l", 30*time.Second), func(i *Instance) { i.Version = 9 }), // saturated: its version counts for nothing
		with(roomy("a"), func(i *Instance) { i.Shutdown = true; i.Version = 9 }),
	}
	got := slices.Clone(want)
	for seed := range uint64(20) {
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		view.Sort(got)
		if diff := cmp.Diff(ids(want), ids(got)); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}

func ids(list []*Instance) []string {
	var names []string
	for _, i := range list {
		names = append(names, i.ID)
	}
	return names
}

func someInstance(r *rand.Rand, id string) *Instance {
	i := &Instance{ID: id, Capacity: 1000, Used: r.Int64N(5) * 240, Count: r.IntN(4) * 8, LRUTime: ago(time.Duration(r.IntN(5)) * 40 * time.Second),
		LoadThreads: 1 + r.IntN(2), LoadsInProgress: r.IntN(3), RPM: r.Int64N(4) * 100, Shutdown: r.IntN(6) == 0, Version: r.Int64N(3),
		Labels: [][]string{{"a"}, {"a", "b"}, {"b"}, {"a", "b", "c"}}[r.IntN(4)]}
	return i
}

// TestOrderIsOne: sorting needs an order in which a before b and b before c means a before c, whatever the records say.
func TestOrderIsOne(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		a, b, c := someInstance(r, "a"), someInstance(r, "b"), someInstance(r, "c")
		if view.Compare(a, b) != -view.Compare(b, a) || view.Compare(a, b) == 0 {
			t.Fatalf("a and b do not know who is better: %+v %+v", a, b)
		}
		if view.Compare(a, b) < 0 && view.Compare(b, c) < 0 && view.Compare(a, c) > 0 {
			t.Fatalf("a before b before c before a: %+v %+v %+v", a, b, c)
		}
	}
}

const constraintsJSON = `{
  "only-a": {"required": ["a"]},
  "a-rather-c": {"required": ["a"], "preferred": ["c"]},
  "both": {"required": ["a", "b"]},
  "_default": {"required": ["_no_runtime"]}
}`

func parsed(t *testing.T, content string) Constraints {
	t.Helper()
	c, err := ParseConstraints([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConstraints(t *testing.T) {
	c := parsed(t, constraintsJSON)
	for _, x := range []struct {
		modelType string
		labels    []string
		want      bool
	}{
		{"only-a", []string{"a"}, true}, {"only-a", []string{"b"}, false}, {"both", []string{"b", "x", "a"}, true}, {"both", []string{"a"}, false},
		{"unknown", []string{"a", "b"}, false}, {"unknown", []string{"_no_runtime"}, true}, {"_default", []string{"a"}, false},
	} {
		if got := c.Allows(x.modelType, x.labels); got != x.want {
			t.Errorf("Allows(%s, %v) = %v", x.modelType, x.labels, got)
		}
	}
	for _, content := range []string{"", " \n", "{}"} {
		if !parsed(t, content).Allows("anything", nil) {
			t.Errorf("with %q a type may not go anywhere", content)
		}
	}
	for _, content := range []string{"[", `["a"]`, `{"t": "a"}`, `{"t": {"required": "a"}}`, strings.Repeat(" ", maxConstraints+1)} {
		if _, err := ParseConstraints([]byte(content)); err == nil {
			t.Errorf("%.20q was taken", content)
		}
	}
}

func TestNoInstances(t *testing.T) {
	c := parsed(t, constraintsJSON)
	for modelType, want := range map[string]string{
		"both":  "There are no running instances that meet the label requirements of type both: [a, b]",
		"mt:x":  "There are no running instances that meet the label requirements of type mt:x: [_no_runtime]",
		"rt:xy": "There are no running instances that meet the label requirements of type rt:xy: [_no_runtime]",
	} {
		if got := c.NoInstances(modelType); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPartition(t *testing.T) {
	c := parsed(t, constraintsJSON)
	if c.Partition([]string{"a"}) == c.Partition([]string{"a", "b"}) {
		t.Error("instances that may load different types are one partition")
	}
	if c.Partition([]string{"a", "z"}) != c.Partition([]string{"a"}) {
		t.Error("a label that no type asks for makes a partition")
	}
	if got := (Constraints{}).Partition([]string{"a"}); got != "" {
		t.Errorf("without constraints the partition is %q", got)
	}
}

func TestSum(t *testing.T) {
	c := parsed(t, constraintsJSON)
	a := &Instance{Labels: []string{"a"}, Capacity: 100, Used: 60, Count: 2, LRUTime: 50}
	b := &Instance{Labels: []string{"a"}, Capacity: 100, Used: 120, Count: 3, LRUTime: 40}
	other := &Instance{Labels: []string{"b"}, Capacity: 1000, LRUTime: 1}
	ending := &Instance{Labels: []string{"a"}, Capacity: 1000, LRUTime: 1, Shutdown: true}
	empty := &Instance{Labels: []string{"a"}, Capacity: 100}
	got := Sum([]*Instance{a, b, other, ending, empty}, c, "only-a")
	if want := (Totals{Instances: 3, Models: 5, Capacity: 300, Used: 180, LRUTime: 40}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got.FreeShare() != 0.4 || (Totals{}).FreeShare() != 0 {
		t.Errorf("free: %v of something, %v of nothing", got.FreeShare(), Totals{}.FreeShare())
	}
}

func TestShortlist(t *testing.T) {
	labelled := func(i *Instance, labels ...string) *Instance { i.Labels = labels; return i }
	for name, x := range map[string]struct {
		instances []*Instance
		types     string
		wish      Wish
		replaced  string
		want      []string
	}{
		"a quarter of the space": {
			instances: []*Instance{
				with(roomy("best"), func(i *Instance) { i.Count = 1; i.Used = 2000 }),
				with(roomy("quarter"), func(i *Instance) { i.Count = 9; i.Used = 8000 }),
				with(roomy("less"), func(i *Instance) { i.Count = 9; i.Used = 8001 }),
			}, want: []string{"best", "quarter"},
		},
		"models by the candidate's own record": {
			instances: []*Instance{
				with(roomy("best"), func(i *Instance) { i.Count = 80 }),
				with(roomy("more"), func(i *Instance) { i.Count = 100 }),
				with(roomy("many"), func(i *Instance) { i.Count = 101 }),
			}, want: []string{"best", "more"}, wish: Wish{Self: "best"},
		},
		"full: 45 seconds": {
			instances: []*Instance{full("best", 5*time.Minute), full("near", 255*time.Second), full("far", 254*time.Second)},
			want:      []string{"best", "near"},
		},
		"full: a tenth of the age": {
			instances: []*Instance{full("best", 100*time.Minute), full("near", 90*time.Minute), full("far", 89*time.Minute)},
			want:      []string{"best", "near"},
		},
		"excluded": {
			instances: []*Instance{roomy("a"), roomy("b")}, wish: Wish{Excluded: func(id string) bool { return id == "a" }}, want: []string{"b"},
		},
		"ending": {
			instances: []*Instance{roomy("a"), with(roomy("b"), func(i *Instance) { i.Shutdown = true })}, want: []string{"a"},
		},
		"being replaced": {
			instances: []*Instance{roomy("abcdef-11111"), full("ghijkl-22222", time.Hour)}, replaced: "abcdef", want: []string{"ghijkl-22222"},
		},
		"nothing else": {
			instances: []*Instance{roomy("abcdef-11111")}, replaced: "abcdef", want: []string{"abcdef-11111"},
		},
		"an older version has space": {
			instances: []*Instance{with(full("new", time.Hour), func(i *Instance) { i.Version = 2 }), roomy("old")}, want: []string{"new"},
		},
		"the newer version is saturated": {
			instances: []*Instance{with(full("new", 10*time.Second), func(i *Instance) { i.Version = 2 }), roomy("old")}, want: []string{"old"},
		},
		"nobody may": {
			instances: []*Instance{labelled(roomy("b"), "b")}, types: constraintsJSON, wish: Wish{Type: "both"},
		},
		"preferred labels": {
			instances: []*Instance{labelled(roomy("a"), "a"), labelled(with(roomy("b"), func(i *Instance) { i.Count = 90 }), "a", "c")},
			types:     constraintsJSON, wish: Wish{Type: "a-rather-c"}, want: []string{"b"},
		},
		"preferred but full": {
			instances: []*Instance{labelled(roomy("a"), "a"), labelled(full("b", 9*time.Hour), "a", "c")},
			types:     constraintsJSON, wish: Wish{Type: "a-rather-c"}, want: []string{"a"},
		},
		"all full: preferred within a quarter": {
			instances: []*Instance{labelled(full("a", 100*time.Minute), "a"), labelled(full("b", 75*time.Minute), "a", "c")},
			types:     constraintsJSON, wish: Wish{Type: "a-rather-c"}, want: []string{"b"},
		},
		"all full: preferred too young": {
			instances: []*Instance{labelled(full("a", 100*time.Minute), "a"), labelled(full("b", 74*time.Minute), "a", "c")},
			types:     constraintsJSON, wish: Wish{Type: "a-rather-c"}, want: []string{"a"},
		},
		"the specialist": { // the other could load more types
			instances: []*Instance{labelled(roomy("generalist"), "a", "b"), labelled(with(roomy("specialist"), func(i *Instance) { i.Count = 99 }), "a")},
			types:     constraintsJSON, wish: Wish{Type: "only-a"}, want: []string{"specialist"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := view
			v.Replaced = map[string]bool{x.replaced: true}
			got := v.Shortlist(x.instances, parsed(t, x.types), x.wish)
			if diff := cmp.Diff(x.want, ids(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestBusy: the sooner a model will be asked for, the calmer its place must be.
func TestBusy(t *testing.T) {
	var instances []*Instance
	for _, rpm := range []int64{50, 110, 111, 150, 151, 300, 301, 400, 401} {
		instances = append(instances, with(roomy(fmt.Sprintf("%03d", rpm)), func(i *Instance) { i.RPM = rpm }))
	}
	for _, c := range []struct {
		lastUsed int64
		most     string
	}{
		{now + 20000, "110"}, {now, "150"}, {ago(4 * time.Second), "150"}, {ago(11 * time.Minute), "300"}, {ago(23 * time.Hour), "400"},
		{ago(4 * 24 * time.Hour), "400"}, {ago(6 * 24 * time.Hour), "401"},
	} {
		var seen []string
		for n := range 100 {
			i, ok := view.Choose(instances, Constraints{}, Wish{LastUsed: c.lastUsed}, func(among int) int { return n % among })
			if !ok {
				t.Fatal("no place")
			}
			seen = append(seen, i.ID)
		}
		if most := slices.Max(seen); most != c.most {
			t.Errorf("last used %v ago: the busiest that was chosen has %s, want %s", time.Duration(now-c.lastUsed)*time.Millisecond, most, c.most)
		}
	}
}

func TestStaysHere(t *testing.T) {
	instances := []*Instance{roomy("a"), with(roomy("self"), func(i *Instance) { i.RPM = 10000 })}
	last := func(int) int { return 0 }
	if i, _ := view.Choose(instances, Constraints{}, Wish{Self: "self", Balanced: true, LastUsed: now}, last); i.ID != "self" {
		t.Errorf("callers are spread and it went to %s", i.ID)
	}
	if i, _ := view.Choose(instances, Constraints{}, Wish{Self: "self", LastUsed: now}, last); i.ID != "a" {
		t.Errorf("it stayed at a busy place: %s", i.ID)
	}
}

// TestChoiceIsSound: whatever the records say, the choice may load the model, and is not full while one like it has space.
func TestChoiceIsSound(t *testing.T) {
	c := parsed(t, constraintsJSON)
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 4))
		var instances []*Instance
		for n := range 1 + r.IntN(8) {
			instances = append(instances, someInstance(r, fmt.Sprintf("set%03d-%05d", r.IntN(2), n)))
		}
		v := view
		v.Replaced = map[string]bool{"set000": r.IntN(2) == 0}
		excluded := instances[0].ID
		w := Wish{Type: []string{"only-a", "both", "a-rather-c"}[r.IntN(3)], LastUsed: now - r.Int64N(1000000), Self: instances[len(instances)-1].ID,
			Balanced: r.IntN(2) == 0, Excluded: func(id string) bool { return id == excluded }}
		able := slices.DeleteFunc(slices.Clone(instances), func(i *Instance) bool {
			return i.ID == excluded || i.Shutdown || !c.Allows(w.Type, i.Labels)
		})
		got, ok := v.Choose(instances, c, w, r.IntN)
		if ok != (len(able) > 0) || ok && !slices.Contains(able, got) {
			t.Fatalf("seed %d: chose %v of %v", seed, got, ids(able))
		}
		for _, i := range able {
			if !v.Replaced[replicaSet(i.ID)] && i.Version == got.Version && v.Full(got) && !v.Full(i) {
				t.Fatalf("seed %d: chose the full %+v though %+v has space", seed, got, i)
			}
		}
	}
}

func TestUpgrades(t *testing.T) {
	old := &Instance{ID: "aaaaaa-11111", StartTime: ago(time.Hour), Labels: []string{"x", "y"}}
	fresh := &Instance{ID: "bbbbbb-11111", StartTime: ago(10 * time.Minute), Labels: []string{"y", "x"}}
	later := &Instance{ID: "bbbbbb-22222", StartTime: ago(time.Minute), Labels: []string{"x", "y"}}
	other := &Instance{ID: "cccccc-11111", StartTime: ago(2 * time.Hour), Labels: []string{"z"}}
	var u Upgrades
	all := []*Instance{old, fresh, later, other}
	if diff := cmp.Diff(map[string]bool{"aaaaaa": true}, u.Replaced(all, now)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The first pod of the new set goes; the set is no younger for it, so the time of replacing ends when it would have.
	without := []*Instance{old, later, other}
	soon := now + (11 * time.Minute).Milliseconds()
	if got := u.Replaced(without, soon); len(got) != 0 {
		t.Errorf("21 minutes after the new set began, %v still count as being replaced", got)
	}
	// A set that is gone is forgotten.
	u.Replaced([]*Instance{old}, soon)
	if len(u.first) != 1 {
		t.Errorf("remembers %v", u.first)
	}
	// A further pod of the same set replaces nobody.
	if got := u.Replaced([]*Instance{old, {ID: "aaaaaa-22222", StartTime: now, Labels: []string{"x", "y"}}}, now); len(got) != 0 {
		t.Errorf("a further pod of a set replaces %v", got)
	}
}
