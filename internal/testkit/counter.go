// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"k8s.io/client-go/rest"
)

// Counter counts the requests of the clients whose configuration it wrapped, by
// verb and resource. A request counts when it leaves, whatever the answer. What
// was read of the answers is counted as well.
type Counter struct {
	mu     sync.Mutex
	counts Counts
	read   map[Call]int
}

// NewCounter returns a counter at zero.
func NewCounter() *Counter { return &Counter{counts: Counts{}, read: map[Call]int{}} }

// Wrap returns a copy of cfg whose requests are counted. Several configurations
// may be wrapped by one counter.
func (c *Counter) Wrap(cfg *rest.Config) *rest.Config {
	return wrap(cfg, func(call Call, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		c.mu.Lock()
		c.counts[call]++
		c.mu.Unlock()
		resp, err := next.RoundTrip(req)
		if err == nil {
			resp.Body = &countedBody{ReadCloser: resp.Body, read: func(n int) {
				c.mu.Lock()
				c.read[call] += n
				c.mu.Unlock()
			}}
		}
		return resp, err
	})
}

// countedBody tells how much of an answer was read.
type countedBody struct {
	io.ReadCloser
	read func(int)
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read(n)
	return n, err
}

// Read is how many bytes of answers about a resource were read, however it was
// asked for.
func (c *Counter) Read(target string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for call, bytes := range c.read {
		if call.Target() == target {
			n += bytes
		}
	}
	return n
}

// Snapshot returns the counts so far.
func (c *Counter) Snapshot() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// Since returns what was counted after the snapshot was taken.
func (c *Counter) Since(before Counts) Counts {
	since := Counts{}
	for call, n := range c.Snapshot() {
		if n > before[call] {
			since[call] = n - before[call]
		}
	}
	return since
}

// Writes is the number of writes so far; see Counts.Writes.
func (c *Counter) Writes() int { return c.Snapshot().Writes() }

// Leases is the number of writes to Leases so far.
func (c *Counter) Leases() int { return c.Snapshot().Leases() }

// String is a small table of the counts so far.
func (c *Counter) String() string { return c.Snapshot().String() }

// Counts are numbers of requests.
type Counts map[Call]int

// Of sums the requests with the verb for the target, as Call.Target writes it;
// an empty verb or target stands for every one.
func (c Counts) Of(verb, target string) int {
	return c.sum(func(call Call) bool {
		return (verb == "" || call.Verb == verb) && (target == "" || call.Target() == target)
	})
}

// Total is the number of all requests.
func (c Counts) Total() int { return c.sum(func(Call) bool { return true }) }

// Writes is the number of requests that change something. Renewals of leases
// follow the clock and are left to Leases; reviews of tokens and permissions
// and tokens on request are sent like a write and store nothing.
func (c Counts) Writes() int {
	return c.sum(func(call Call) bool { return call.Mutating() && !call.lease() && !call.stateless() })
}

// Leases is the number of writes to Leases.
func (c Counts) Leases() int {
	return c.sum(func(call Call) bool { return call.Mutating() && call.lease() })
}

// stateless tells whether the call is a question in the form of a create.
func (c Call) stateless() bool {
	return c.Group == "authentication.k8s.io" || c.Group == "authorization.k8s.io" ||
		c.Group == "" && c.Resource == "serviceaccounts" && c.Subresource == "token"
}

func (c Counts) sum(which func(Call) bool) int {
	n := 0
	for call, count := range c {
		if which(call) {
			n += count
		}
	}
	return n
}

// String is a table of one line per verb and target, writes first, and a line
// with the sums.
func (c Counts) String() string {
	calls := slices.SortedFunc(maps.Keys(c), func(a, b Call) int {
		return cmp.Or(
			cmp.Compare(slices.Index(mutating, b.Verb), slices.Index(mutating, a.Verb)),
			cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Target(), b.Target()))
	})
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, call := range calls {
		fmt.Fprintf(table, "%s\t%s\t%d\n", call.Verb, call.Target(), c[call])
	}
	_ = table.Flush()
	fmt.Fprintf(&out, "%d requests, %d writes, and %d to leases\n", c.Total(), c.Writes(), c.Leases())
	return out.String()
}
