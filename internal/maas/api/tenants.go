// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// tenantTime bounds all questions that are asked of the cluster for one list of tenants.
const tenantTime = 5 * time.Second

// Gateway is where a tenant's models are reached.
type Gateway struct {
	Name        string `json:"name"`
	Namespace   string `json:"namespace"`
	Protocol    string `json:"protocol,omitempty"`
	ExternalURL string `json:"externalUrl,omitempty"`
	Port        int32  `json:"port,omitempty"`
}

type tenant struct {
	Name    string  `json:"name"`
	Gateway Gateway `json:"gateway"`
}

type tenantList struct {
	Tenants []tenant `json:"tenants"`
}

// ErrNoGateway is a gateway that is not there.
var ErrNoGateway = errors.New("the gateway of this tenant is not there")

// TenantLister asks the cluster.
type TenantLister interface {
	// Known tells who the bearer of a token is, nil for nobody, and whether they are somebody of the cluster.
	Known(ctx context.Context, token string) (who *Caller, may bool, err error)
	// Gateway of this server; ErrNoGateway if it is not there.
	Gateway(ctx context.Context) (Gateway, error)
}

func tenantProblem(code int, message, details string) *problem {
	return &problem{answer: answer{code: code, body: map[string]string{"error": message, "details": details}}}
}

func (a *API) listTenants(req *http.Request, _ Caller) (answer, error) {
	token, shown := bearer(req)
	if !shown || token == "" || a.Tenants == nil {
		return answer{}, tenantProblem(http.StatusUnauthorized, "Authentication required", "send a token of the Kubernetes cluster as a bearer token")
	}
	ctx, cancel := context.WithTimeout(req.Context(), tenantTime)
	defer cancel()
	who, may, err := a.Tenants.Known(ctx, token)
	switch {
	case err != nil:
		return answer{}, a.tenantFailure(ctx, req, err)
	case who == nil:
		return answer{}, tenantProblem(http.StatusUnauthorized, "Authentication failed", "the bearer token is not valid")
	case !may:
		return answer{}, tenantProblem(http.StatusForbidden, "Access denied", who.Username+" may not ask the cluster about its own permissions (create selfsubjectaccessreviews)")
	}
	gateway, err := a.Tenants.Gateway(ctx)
	switch {
	case errors.Is(err, ErrNoGateway):
		return answer{}, tenantProblem(http.StatusNotFound, "Gateway not found", err.Error())
	case err != nil:
		return answer{}, a.tenantFailure(ctx, req, err)
	}
	return ok(tenantList{[]tenant{{a.Tenant, gateway}}}), nil
}

func (a *API) tenantFailure(ctx context.Context, req *http.Request, err error) error {
	if ctx.Err() != nil {
		return tenantProblem(http.StatusGatewayTimeout, "Timeout", "the cluster does not answer in time; try again")
	}
	a.Log.Error("The cluster could not be asked", "path", req.URL.Path, "request", requestID(req), "err", err.Error())
	return tenantProblem(http.StatusInternalServerError, "Internal error", "the cluster could not be asked; the log of the server says why")
}
