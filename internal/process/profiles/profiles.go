// SPDX-License-Identifier: Apache-2.0

// Package profiles shows what a process does and what its memory is for. It is a room of its own because whoever imports it
// has the runtime count memory for profiles from the first moment, which the smallest programs do not want to pay for.
package profiles

import (
	"net/http"
	"net/http/pprof"
)

// Handler answers /debug/pprof/. A profile may take longer than the usual limit of an answer.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
