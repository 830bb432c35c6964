// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"net"
)

// CheckProfiling refuses addresses that other machines can reach: a profile shows what is in memory, keys included.
// Messages name the flags --profiling-bind-address and --profiling-allow-remote.
func CheckProfiling(address string, allowRemote bool) error {
	if Off(address) || allowRemote {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--profiling-bind-address %q is not host:port", address)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("--profiling-bind-address %q can be reached from other machines; "+
		"use 127.0.0.1 and a port-forward, or add --profiling-allow-remote", address)
}
