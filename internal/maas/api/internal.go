// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/modelplane/modelplane/internal/maas/selection"
	"github.com/modelplane/modelplane/internal/maas/store"
)

type validateRequest struct {
	Key string `json:"key"`
}

// validation is what gateways hear of a key.
type validation struct {
	Valid        bool     `json:"valid"`
	UserID       string   `json:"userId,omitempty"`
	Username     string   `json:"username,omitempty"`
	KeyID        string   `json:"keyId,omitempty"`
	KeyName      string   `json:"keyName,omitempty"`
	Groups       []string `json:"groups,omitempty"`
	Subscription string   `json:"subscription,omitempty"`
	Tenant       string   `json:"tenant"`
	Reason       string   `json:"reason,omitempty"`
}

func (a *API) validate(req *http.Request, _ Caller) (answer, error) {
	var ask validateRequest
	if err := decode(req, &ask, false); err != nil {
		return answer{}, err
	}
	if ask.Key == "" {
		return answer{}, told(http.StatusBadRequest, "key is required")
	}
	v, err := a.Cache.Validate(req.Context(), ask.Key)
	if err != nil {
		a.Metrics.validated.WithLabelValues(a.Tenant, "error").Inc()
		return answer{}, err
	}
	out := validation{Valid: v.Valid, Tenant: a.Tenant, Reason: v.Reason}
	result := "invalid"
	if r := v.Record; v.Valid {
		result = "valid"
		out.UserID, out.Username, out.KeyID, out.KeyName, out.Groups, out.Subscription = r.ID, r.Username, r.ID, r.Name, r.Groups, r.Subscription
	}
	a.Metrics.validated.WithLabelValues(a.Tenant, result).Inc()
	return answer{code: http.StatusOK, header: noStore(), body: out}, nil
}

// cleanUpAfter is how long an ephemeral key stays to be looked at once it has expired.
const cleanUpAfter = 30 * time.Minute

type cleanUpResponse struct {
	DeletedCount int64  `json:"deletedCount"`
	Message      string `json:"message"`
}

func (a *API) cleanUp(req *http.Request, _ Caller) (answer, error) {
	n, err := a.Store.CleanUp(req.Context(), a.Tenant, a.Now().Add(-cleanUpAfter))
	if err != nil {
		return answer{}, err
	}
	return ok(cleanUpResponse{n, fmt.Sprintf("%d expired ephemeral keys were removed", n)}), nil
}

func (a *API) revokeTenant(req *http.Request, _ Caller) (answer, error) {
	if tenant := req.PathValue("tenant"); tenant != a.Tenant {
		return answer{}, told(http.StatusBadRequest, fmt.Sprintf("this server has the keys of tenant %q; ask the server of the other tenant", a.Tenant))
	}
	n, err := a.Store.RevokeAll(req.Context(), store.Scope{Tenant: a.Tenant}, a.Now())
	if err != nil {
		return answer{}, err
	}
	a.Cache.ForgetAll()
	a.Log.Info("All keys of the tenant were revoked", "audit", true, "request", requestID(req), "keys", n)
	return ok(revokeResponse{RevokedCount: n, Message: fmt.Sprintf("%d active keys were revoked", n)}), nil
}

type selectRequest struct {
	Groups                []string `json:"groups,omitempty"`
	Username              string   `json:"username,omitempty"`
	RequestedSubscription string   `json:"requestedSubscription,omitempty"`
	RequestedModel        string   `json:"requestedModel,omitempty"`
}

// selected is a subscription, or an error code with a message.
type selected struct {
	Name              string            `json:"name,omitempty"`
	Namespace         string            `json:"namespace,omitempty"`
	DisplayName       string            `json:"displayName,omitempty"`
	Description       string            `json:"description,omitempty"`
	Priority          int32             `json:"priority,omitempty"`
	ModelRefs         []modelRefInfo    `json:"modelRefs,omitempty"`
	OrganizationID    string            `json:"organizationId,omitempty"`
	CostCenter        string            `json:"costCenter,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	ResolvedModel     string            `json:"resolvedModel,omitempty"`
	AccessAllowed     bool              `json:"accessAllowed"`
	Phase             string            `json:"phase"`
	Ready             bool              `json:"ready,omitempty"`
	DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
	Error             string            `json:"error,omitempty" doc:"bad_request, not_found, access_denied, multiple_subscriptions, model_not_in_subscription, model_unhealthy or internal_error"`
	Message           string            `json:"message,omitempty"`
}

// selectSubscription answers 200 in every case but a body that is too large: a gateway reads the error from it.
func (a *API) selectSubscription(req *http.Request, _ Caller) (answer, error) {
	var ask selectRequest
	if err := decode(req, &ask, false); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return answer{}, err
		}
		return ok(selected{Error: string(selection.BadRequest), Message: "the body is no JSON object with username, groups, requestedSubscription and requestedModel"}), nil
	}
	if len(ask.Groups) > maxGroups {
		return ok(selected{Error: string(selection.BadRequest), Message: fmt.Sprintf("more than %d groups are given", maxGroups)}), nil
	}
	if !a.synced() {
		return ok(selected{Error: string(selection.InternalError), Message: "subscriptions are not read yet; try again in a moment"}), nil
	}
	choice, err := a.Index.Select(selection.Request{Username: ask.Username, Groups: ask.Groups, Subscription: ask.RequestedSubscription, Model: ask.RequestedModel})
	if e, refused := errors.AsType[*selection.Error](err); refused {
		return ok(selected{Error: string(e.Code), Message: e.Message}), nil
	} else if err != nil {
		return answer{}, err
	}
	s := choice.Subscription
	out := selected{
		Name: s.Name, Namespace: s.Namespace, DisplayName: s.DisplayName, Description: s.Description, Priority: s.EffectivePriority(), ModelRefs: a.modelRefs(s, nil),
		OrganizationID: s.OrganizationID, CostCenter: s.CostCenter, Labels: s.Labels, AccessAllowed: choice.Allowed, Phase: s.Phase, Ready: s.Works(),
		DeletionTimestamp: timeText(s.Deleted),
	}
	if choice.Model != (selection.Model{}) {
		out.ResolvedModel = choice.Model.String()
	}
	return ok(out), nil
}
