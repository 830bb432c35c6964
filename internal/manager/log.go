// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Detail takes what libraries find worth telling for a detail: at the default level the log holds our own decisions, and
// everybody's warnings and errors. It fits process.LogOptions.
func Detail(r slog.Record) bool {
	return fromLibrary(r.PC) && (r.Level < slog.LevelWarn || farewell(r))
}

// farewell recognises the errors that libraries report at an orderly end: giving the lease back counts as losing it, and
// a request or a cache that was under way when the process stopped comes back as cancelled, or as one that never came. A
// loss that matters comes back from Run.
func farewell(r slog.Record) bool {
	found := false
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		found = ok && (errors.Is(err, context.Canceled) || r.Message == afterStop && err.Error() == "leader election lost" ||
			r.Message == noInformer && apierrors.IsTimeout(err))
		return !found
	})
	return found
}

// afterStop is how controller-runtime begins a line about what went wrong while it stopped.
const afterStop = "error received after stop sequence was engaged"

// noInformer is how controller-runtime tells that a cache was given up before it was filled.
const noInformer = "failed to get informer from cache"

// fromLibrary tells by the place in the code where the line was written.
func fromLibrary(pc uintptr) bool {
	if pc == 0 {
		return false
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return strings.HasPrefix(frame.Function, "sigs.k8s.io/") || strings.HasPrefix(frame.Function, "k8s.io/")
}
