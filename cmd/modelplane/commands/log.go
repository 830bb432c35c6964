// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/internal/process"
)

// setLog sends every line of the process through one handler, also those of libraries with a logger of their own.
func setLog(handler slog.Handler) logr.Logger {
	log := logr.FromSlogHandler(handler)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	process.SetLog(handler)
	return log
}
