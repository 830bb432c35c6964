// SPDX-License-Identifier: Apache-2.0

package model

/*
#include <malloc.h>

static void settle(void) {
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	mallopt(M_ARENA_MAX, 2);
#endif
}

static void trim(void) {
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}
*/
import "C"

// SettleMemory has memory of large weights go back to the system when a model is closed, and keeps C's allocator from
// having a place of its own for every thread. It is for a process that loads and closes many models, before the first.
func SettleMemory() { C.settle() }

// TrimMemory gives what closed models left free to the system.
func TrimMemory() { C.trim() }
