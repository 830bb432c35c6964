// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
)

// Profiles answers /debug/pprof/. A profile may take longer than the usual limit of an answer.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

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
