// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"

	"github.com/modelplane/modelplane/internal/maas/metering"
)

// operation is what the description of the API says of a route.
type operation struct {
	summary       string
	asks, answers any // values of the types that are sent and received; nil for none
	code          int // of a success; 200 if zero
	errors        []int
	header        string // that is read
}

func publicRoutes() []route {
	return []route{
		{http.MethodGet, "/health", (*API).ready, nil, open, operation{summary: "Whether requests can be answered: the store answers, and subscriptions are read", answers: healthResponse{}, errors: []int{503}}},
		{http.MethodGet, "/readyz", (*API).ready, nil, open, operation{summary: "The same, by the name that Kubernetes uses", answers: healthResponse{}, errors: []int{503}}},
		{http.MethodGet, "/livez", (*API).health, nil, open, operation{summary: "Whether the process runs", answers: healthResponse{}}},
		{http.MethodGet, "/openapi.json", (*API).describe, nil, open, operation{summary: "This description"}},
		{http.MethodGet, "/v1/models", (*API).listModels, nil, optional, operation{summary: "List the models that the caller gets answers from", answers: modelList{}, errors: []int{401, 403, 500, 503}, header: headerSubscription}},
		{http.MethodGet, "/v1/subscriptions", (*API).listSubscriptions, nil, optional, operation{summary: "List the subscriptions of the caller", answers: []subscriptionInfo{}, errors: []int{401, 500, 503}}},
		{http.MethodGet, "/v1/model/{model}/subscriptions", (*API).listModelSubscriptions, nil, optional, operation{summary: "List the subscriptions of the caller that have a model", answers: []subscriptionInfo{}, errors: []int{401, 500, 503}}},
		{http.MethodPost, "/v1/api-keys", (*API).createKey, nil, strict, operation{summary: "Make an API key", asks: createRequest{}, answers: createResponse{}, code: 201, errors: []int{400, 401, 403, 413, 500, 503}}},
		{http.MethodPost, "/v1/api-keys/search", (*API).searchKeys, nil, optional, operation{summary: "List API keys", asks: searchRequest{}, answers: searchResponse{}, errors: []int{400, 401, 403, 413, 500, 503}}},
		{http.MethodPost, "/v1/api-keys/bulk-revoke", (*API).bulkRevoke, nil, strict, operation{summary: "Revoke the active keys of a user or a subscription", asks: revokeRequest{}, answers: revokeResponse{}, errors: []int{400, 401, 403, 413, 500, 503}}},
		{http.MethodGet, "/v1/api-keys/config", (*API).keyConfig, nil, strict, operation{summary: "How long keys may live", answers: configResponse{}, errors: []int{401, 500, 503}}},
		{http.MethodGet, "/v1/api-keys/{id}", (*API).getKey, nil, strict, operation{summary: "Read one API key", answers: apiKey{}, errors: []int{401, 404, 500, 503}}},
		{http.MethodDelete, "/v1/api-keys/{id}", (*API).deleteKey, nil, strict, operation{summary: "Revoke one API key", answers: apiKey{}, errors: []int{401, 404, 500, 503}}},
		{http.MethodGet, "/v1/tenants", (*API).listTenants, nil, open, operation{summary: "The tenant of this server and its gateway, for those whom the cluster knows", answers: tenantList{}, errors: []int{401, 403, 404, 500, 504}}},
		{http.MethodGet, metering.PathShow, nil, (*API).showUsage, strict, operation{summary: "What the caller has used; administrators see everybody's. As a table with format=csv", answers: metering.Answer{}, errors: []int{400, 401, 403, 500, 503}}},
	}
}

// What is asked about each request.
const (
	pathValidate = "/internal/v1/api-keys/validate"
	pathSelect   = "/internal/v1/subscriptions/select"
)

// internalRoutes are served on an address of their own, so that no rewrite of a gateway leads to them.
func internalRoutes() []route {
	return []route{
		{http.MethodGet, "/health", (*API).health, nil, internal, operation{summary: "Whether the process runs", answers: healthResponse{}}},
		{http.MethodPost, pathValidate, (*API).validate, nil, internal, operation{summary: "Check an API key", asks: validateRequest{}, answers: validation{}, errors: []int{400, 413, 500, 503}}},
		{http.MethodPost, "/internal/v1/api-keys/cleanup", (*API).cleanUp, nil, internal, operation{summary: "Remove ephemeral keys that expired half an hour ago", answers: cleanUpResponse{}, errors: []int{500, 503}}},
		{http.MethodDelete, "/internal/v1/tenants/{tenant}/api-keys", (*API).revokeTenant, nil, internal, operation{summary: "Revoke all keys of the tenant", answers: revokeResponse{}, errors: []int{400, 500, 503}}},
		{http.MethodPost, pathSelect, (*API).selectSubscription, nil, internal, operation{summary: "Choose the subscription that pays for a request; errors are in the body", asks: selectRequest{}, answers: selected{}, errors: []int{413}}},
		{http.MethodPost, metering.PathAdd, nil, (*API).takeUsage, internal, operation{summary: "Keep what was used", code: 204, errors: []int{400, 413, 503}}},
	}
}

type healthResponse struct {
	Status string `json:"status"`
}

func (a *API) health(*http.Request, Caller) (answer, error) {
	return ok(healthResponse{"healthy"}), nil
}

// ready asks the store: without it no key can be checked.
func (a *API) ready(req *http.Request, _ Caller) (answer, error) {
	if !a.synced() {
		return answer{code: http.StatusServiceUnavailable, body: healthResponse{"unhealthy: subscriptions are not read yet"}}, nil
	}
	if err := a.Store.Check(req.Context()); err != nil {
		a.Log.Warn("The store does not answer", "err", err.Error())
		return answer{code: http.StatusServiceUnavailable, body: healthResponse{"unhealthy: the store does not answer; the log says why"}}, nil
	}
	return ok(healthResponse{"healthy"}), nil
}

func (a *API) synced() bool { return a.Synced == nil || a.Synced() }
