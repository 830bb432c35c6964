// SPDX-License-Identifier: Apache-2.0

package dest

import (
	"fmt"
	"sync"
)

// Limits bound what may be written. Zero means no bound.
type Limits struct {
	Bytes int64
	Files int64
}

// Budget counts what is written against the limits, for several directories together.
type Budget struct {
	limits Limits

	mu           sync.Mutex
	bytes, files int64
}

// NewBudget starts to count at nothing.
func NewBudget(limits Limits) *Budget { return &Budget{limits: limits} }

// TooLarge says that a limit is reached.
type TooLarge struct {
	// What is too much, and the limit in words.
	What, Limit string
}

func (t *TooLarge) Error() string {
	return fmt.Sprintf("%s more than the limit of %s allows", t.What, t.Limit)
}

// NoRoom says that the file system is full, or would be.
type NoRoom struct{ Needs, Free int64 }

func (n *NoRoom) Error() string {
	return fmt.Sprintf("it needs %s and the destination has %s left", Size(n.Needs), Size(n.Free))
}

// Fits tells whether so many bytes more would be allowed, so that a download that cannot end well does not start.
func (b *Budget) Fits(bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.check(b.bytes+bytes, 0)
}

func (b *Budget) check(bytes, files int64) error {
	if limit := b.limits.Bytes; limit > 0 && bytes > limit {
		return &TooLarge{What: "it has", Limit: Size(limit)}
	}
	if limit := b.limits.Files; limit > 0 && files > limit {
		return &TooLarge{What: "it has", Limit: fmt.Sprintf("%d files", limit)}
	}
	return nil
}

// grow counts bytes and files, which may be negative; what is refused is not counted.
func (b *Budget) grow(bytes, files int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes > 0 || files > 0 {
		if err := b.check(b.bytes+bytes, b.files+files); err != nil {
			return err
		}
	}
	b.bytes += bytes
	b.files += files
	return nil
}

// aside is an account of its own with the same limits, for what is not going to stay.
func (b *Budget) aside() *Budget { return NewBudget(b.limits) }

// Size writes a number of bytes for people.
func Size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, prefix := float64(n)/unit, 0
	for value >= unit && prefix < 5 {
		value /= unit
		prefix++
	}
	return fmt.Sprintf("%.4g %ciB", value, "KMGTPE"[prefix])
}
