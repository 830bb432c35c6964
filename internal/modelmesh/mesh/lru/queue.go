// SPDX-License-Identifier: Apache-2.0

package lru

import "container/heap"

// queue is a heap of what may be given up, by last use as far as the order knows it, then by arrival. Entries that share a
// millisecond stay apart.
type queue[K comparable, V any] struct {
	nodes nodes[K, V]
}

func (q *queue[K, V]) push(n *node[K, V]) { heap.Push(&q.nodes, n) }

func (q *queue[K, V]) remove(n *node[K, V]) {
	if n.place >= 0 {
		heap.Remove(&q.nodes, n.place)
	}
}

// oldest puts entries right that were touched until one comes first that was not.
func (q *queue[K, V]) oldest() *node[K, V] {
	for len(q.nodes) > 0 {
		n := q.nodes[0]
		now := n.lastUsed.Load()
		if now == n.ordered {
			return n
		}
		n.ordered = now
		heap.Fix(&q.nodes, 0)
	}
	return nil
}

// nodes is what container/heap needs.
type nodes[K comparable, V any] []*node[K, V]

func (h nodes[K, V]) Len() int { return len(h) }

func (h nodes[K, V]) Less(i, j int) bool {
	if h[i].ordered != h[j].ordered {
		return h[i].ordered < h[j].ordered
	}
	return h[i].number < h[j].number
}

func (h nodes[K, V]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *nodes[K, V]) Push(x any) {
	n := x.(*node[K, V])
	n.place = len(*h)
	*h = append(*h, n)
}

func (h *nodes[K, V]) Pop() any {
	last := len(*h) - 1
	n := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	n.place = -1
	return n
}
