// SPDX-License-Identifier: Apache-2.0

// Package freeport finds ports for servers that tests start. It needs nothing but the standard library, so that tests of any module
// can use it without compiling a control plane.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// handedOut are the ports that this process has given away, at whatever address.
var handedOut struct {
	sync.Mutex
	ports map[int]bool
}

// At returns a port at which nobody listens at an address of this machine, and never the same one twice. It lies
// below the range from which the kernel serves outgoing connections and ":0", so that no other process gets it by
// chance before it is used, or while a server that had it is away.
func At(t testing.TB, host string) int {
	t.Helper()
	handedOut.Lock()
	defer handedOut.Unlock()
	if handedOut.ports == nil {
		handedOut.ports = map[int]bool{}
	}
	const lowest, beyond, tries = 10000, 32000, 1000
	last := errors.New("all were given away")
	for range tries {
		port := lowest + rand.IntN(beyond-lowest)
		if handedOut.ports[port] {
			continue
		}
		if last = free(host, port); last == nil {
			handedOut.ports[port] = true
			return port
		}
	}
	t.Fatalf("no free port found at %q in %d tries: %v", host, tries, last)
	return 0
}

func free(host string, port int) error {
	// A process that begins at this moment would hold the port until it has become its program.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return listener.Close()
}
