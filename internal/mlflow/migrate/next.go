// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/modelplane/modelplane/internal/engine"
)

// Next decides what is to be done now. server is the Deployment as it should be
// when nothing is to be migrated, with its namespace; the Jobs derive from it.
// Nothing that is given is changed.
func Next(o Observed, server *appsv1.Deployment) Outcome {
	return Outcome{Server: engine.Child{Object: server}, Version: o.Supported}
}
