// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// TestStopDuringStart: what controllers say of caches that were not full is an error unless the process was told to stop.
func TestStopDuringStart(t *testing.T) {
	var out bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	log := quietStop(ctx, logr.FromSlogHandler(slog.NewJSONHandler(&out, nil))).WithName("controllers").WithValues("controller", "sample")
	failure := errors.New("handler did not sync")
	for _, message := range stoppedEarly {
		log.Error(failure, message)
	}
	if n := strings.Count(out.String(), `"level":"ERROR"`); n != len(stoppedEarly) {
		t.Errorf("%d errors before the stop, want %d:\n%s", n, len(stoppedEarly), out.String())
	}
	if !strings.Contains(out.String(), `"controller":"sample"`) {
		t.Errorf("the values are missing:\n%s", out.String())
	}
	out.Reset()
	stop()
	for _, message := range stoppedEarly {
		log.Error(failure, message)
	}
	if out.Len() != 0 {
		t.Errorf("a stop complains:\n%s", out.String())
	}
	log.Error(failure, "something else")
	if !strings.Contains(out.String(), `"level":"ERROR"`) {
		t.Error("another error is not told after the stop")
	}
}
