// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Check tells what is wrong, nil if nothing is.
type Check func(*http.Request) error

// Health answers /healthz and /readyz, each check also by its name below these, and with ?verbose says which checks there
// are. Live should fail only when a restart helps.
type Health struct{ Live, Ready map[string]Check }

// Handler answers with 200 or 500. The reason of a failure goes into the log at level debug and not to whoever asks.
func (h Health) Handler(log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]Check{"/healthz": h.Live, "/readyz": h.Ready} {
		mux.Handle(path, answer(path[1:], checks, log))
		for name, check := range checks {
			mux.Handle(path+"/"+name, answer(name, map[string]Check{name: check}, log))
		}
	}
	return mux
}

func answer(what string, checks map[string]Check, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var told strings.Builder
		failed := false
		for _, name := range slices.Sorted(maps.Keys(checks)) {
			err := checks[name](req)
			if err == nil {
				fmt.Fprintf(&told, "[+]%s ok\n", name)
				continue
			}
			failed = true
			log.Debug("A health check failed", "of", what, "check", name, "err", err.Error())
			fmt.Fprintf(&told, "[-]%s failed: see the log at level debug\n", name)
		}
		if failed {
			http.Error(w, told.String()+what+" check failed", http.StatusInternalServerError)
			return
		}
		if _, verbose := req.URL.Query()["verbose"]; verbose {
			_, _ = fmt.Fprintf(w, "%s%s check passed\n", &told, what)
			return
		}
		_, _ = fmt.Fprint(w, "ok")
	})
}

// Stopping fails once the context has ended: a check by which a program that was asked to stop gets no more requests.
func Stopping(asked interface{ Err() error }) Check {
	return func(*http.Request) error {
		if asked.Err() != nil {
			return errors.New("the process was asked to stop")
		}
		return nil
	}
}
