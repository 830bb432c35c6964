// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"

	"github.com/modelplane/modelplane/internal/maas/metering"
)

// showUsage tells people what they have used, and administrators what everybody has.
func (a *API) showUsage(w http.ResponseWriter, req *http.Request) {
	who, err := a.Identity.Of(req, true)
	if err != nil {
		a.write(w, req, a.failure(req, err))
		return
	}
	admin, err := a.Admin(req.Context(), who)
	if err != nil {
		a.write(w, req, a.failure(req, err))
		return
	}
	viewer := func(*http.Request) (metering.Viewer, error) {
		return metering.Viewer{Username: who.Username, Admin: admin}, nil
	}
	metering.Show(a.Usage, a.Tenant, viewer, a.Now, a.Log).ServeHTTP(w, req)
}

// takeUsage keeps what processes of the platform have counted.
func (a *API) takeUsage(w http.ResponseWriter, req *http.Request) {
	give, room := a.bodies.take(req, metering.MaxBatch)
	if !room {
		a.write(w, req, crowded(req))
		return
	}
	defer give()
	metering.Receive(a.Usage, a.Tenant, a.Log).ServeHTTP(w, req)
}
