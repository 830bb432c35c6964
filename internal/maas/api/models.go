// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/internal/maas/selection"
)

// model is an entry of the list that clients of OpenAI read.
type model struct {
	ID            string              `json:"id"`
	Object        string              `json:"object"`
	Created       int64               `json:"created"`
	OwnedBy       string              `json:"owned_by"`
	Kind          string              `json:"kind,omitempty"`
	URL           string              `json:"url,omitempty"`
	Ready         bool                `json:"ready"`
	ModelDetails  *modelDetails       `json:"modelDetails,omitempty"`
	Aliases       []string            `json:"aliases,omitempty"`
	Subscriptions []modelSubscription `json:"subscriptions,omitempty"`
}

type modelDetails struct {
	GenAIUseCase      string   `json:"genaiUseCase,omitempty"`
	Description       string   `json:"description,omitempty"`
	DisplayName       string   `json:"displayName,omitempty"`
	ContextWindow     string   `json:"contextWindow,omitempty"`
	ModelCapabilities []string `json:"modelCapabilities,omitempty"`
}

type modelSubscription struct {
	Name        string `json:"name"`
	DisplayName string `json:"displayName,omitempty"`
	Description string `json:"description,omitempty"`
}

type modelList struct {
	Object string  `json:"object"`
	Data   []model `json:"data"`
}

func (a *API) listModels(req *http.Request, who Caller) (answer, error) {
	out := answer{code: http.StatusOK, header: noStore(), body: modelList{"list", []model{}}}
	out.header["X-Access-Checked-At"] = timeText(a.Now())
	if who.Username == "" {
		return out, nil
	}
	if req.Header.Get("Authorization") == "" && !who.ByKey {
		return answer{}, nested(http.StatusUnauthorized, "Authorization required", "authentication_error")
	}
	payers, err := a.payers(req, who)
	if err != nil {
		return answer{}, err
	}
	out.body = modelList{"list", a.models(payers, who)}
	return out, nil
}

// payers are the subscriptions whose models are listed: the one that a key is bound to or that a caller names, else all.
func (a *API) payers(req *http.Request, who Caller) ([]*selection.Subscription, error) {
	wanted := who.Subscription
	if !who.ByKey {
		wanted = cmp.Or(wanted, lastOf(req, headerSubscription))
	}
	switch {
	case wanted == "" && who.ByKey:
		return nil, nested(http.StatusForbidden, "API key has no subscription bound", "permission_error")
	case wanted == "":
		return slices.DeleteFunc(a.Index.Accessible(who.Username, who.Groups), func(s *selection.Subscription) bool { return !s.Works() }), nil
	}
	choice, err := a.Index.Select(selection.Request{Username: who.Username, Groups: who.Groups, Subscription: wanted})
	if err != nil { // somebody else's is not told from one that is not there
		return nil, nested(http.StatusForbidden, "the subscription does not exist or is not yours; list yours at /v1/subscriptions", "permission_error")
	}
	if !choice.Subscription.Works() {
		return nil, nested(http.StatusForbidden, "the subscription cannot be used now: its phase is "+cmp.Or(choice.Subscription.Phase, "unknown")+"; ask its administrator to look at its status", "permission_error")
	}
	return []*selection.Subscription{choice.Subscription}, nil
}

// models are those that are ready and that the caller gets an answer from.
func (a *API) models(payers []*selection.Subscription, who Caller) []model {
	type identity struct{ id, url, owner string }
	found := map[identity]*model{}
	for _, s := range payers {
		for _, m := range s.Models {
			ref := a.Index.ModelRef(m.Model)
			if ref == nil || !ref.Ready || !s.WorksFor(m.Model) || !a.Index.Allowed(who.Username, who.Groups, m.Model) {
				continue
			}
			shown := modelOf(ref)
			at := identity{shown.ID, shown.URL, shown.OwnedBy}
			if found[at] == nil {
				found[at] = shown
			}
			entry := modelSubscription{s.Name, s.DisplayName, s.Description}
			if !slices.Contains(found[at].Subscriptions, entry) {
				found[at].Subscriptions = append(found[at].Subscriptions, entry)
			}
		}
	}
	out := make([]model, 0, len(found))
	for _, m := range found {
		slices.SortFunc(m.Subscriptions, func(a, b modelSubscription) int { return cmp.Compare(a.Name, b.Name) })
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b model) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.URL, b.URL), cmp.Compare(a.OwnedBy, b.OwnedBy))
	})
	return out
}

func modelOf(r *selection.ModelRef) *model {
	m := &model{ID: cmp.Or(r.Alias, r.Name), Object: "model", Created: r.Created.Unix(), OwnedBy: r.Model.String(), Kind: r.Kind, URL: r.URL, Ready: r.Ready}
	if r.Alias != "" && r.Alias != r.Name {
		m.Aliases = []string{r.Name}
	}
	if r.UseCase+r.Description+r.DisplayName+r.ContextWindow != "" || len(r.Capabilities) > 0 {
		m.ModelDetails = &modelDetails{r.UseCase, r.Description, r.DisplayName, r.ContextWindow, r.Capabilities}
	}
	return m
}

// subscriptionInfo is a subscription as its owners see it.
type subscriptionInfo struct {
	ID             string            `json:"subscription_id_header"`
	Description    string            `json:"subscription_description"`
	DisplayName    string            `json:"display_name,omitempty"`
	Priority       int32             `json:"priority"`
	ModelRefs      []modelRefInfo    `json:"model_refs"`
	OrganizationID string            `json:"organization_id,omitempty"`
	CostCenter     string            `json:"cost_center,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
}

type modelRefInfo struct {
	Name            string       `json:"name"`
	ModelName       string       `json:"model_name,omitempty"`
	DisplayName     string       `json:"display_name,omitempty"`
	Description     string       `json:"description,omitempty"`
	Source          string       `json:"source,omitempty" doc:"internal or external"`
	TokenRateLimits []limitInfo  `json:"token_rate_limits,omitempty"`
	BillingRate     *billingInfo `json:"billing_rate,omitempty"`
}

type limitInfo struct {
	Limit  int64  `json:"limit"`
	Window string `json:"window"`
}

type billingInfo struct {
	PerToken string `json:"per_token"`
}

// modelRefs describes models of a subscription, those that shown takes; nil takes all.
func (a *API) modelRefs(s *selection.Subscription, shown func(selection.Model) bool) []modelRefInfo {
	out := []modelRefInfo{}
	for _, m := range s.Models {
		if shown != nil && !shown(m.Model) {
			continue
		}
		info := modelRefInfo{Name: m.Name}
		if ref := a.Index.ModelRef(m.Model); ref != nil {
			info.ModelName, info.DisplayName, info.Description, info.Source = cmp.Or(ref.Alias, ref.Name), ref.DisplayName, ref.Description, "internal"
			if strings.HasPrefix(ref.Kind, "External") {
				info.Source = "external"
			}
		}
		for _, l := range m.Limits {
			info.TokenRateLimits = append(info.TokenRateLimits, limitInfo{l.Tokens, l.Window})
		}
		if m.PerToken != "" {
			info.BillingRate = &billingInfo{m.PerToken}
		}
		out = append(out, info)
	}
	return out
}

func (a *API) info(s *selection.Subscription, who Caller) subscriptionInfo {
	open := func(m selection.Model) bool { return a.Index.Allowed(who.Username, who.Groups, m) }
	return subscriptionInfo{
		ID: s.Name, Description: s.Description, DisplayName: s.DisplayName, Priority: s.EffectivePriority(), ModelRefs: a.modelRefs(s, open),
		OrganizationID: s.OrganizationID, CostCenter: s.CostCenter, Labels: s.Labels,
	}
}

// mayUse tells whether a subscription belongs to what the caller shows: a key has one alone.
func mayUse(who Caller, s *selection.Subscription) bool {
	return !who.ByKey || who.Subscription == s.Name || who.Subscription == s.Key()
}

func (a *API) listSubscriptions(_ *http.Request, who Caller) (answer, error) {
	out := []subscriptionInfo{}
	if who.Username == "" {
		return ok(out), nil
	}
	for _, s := range a.Index.Accessible(who.Username, who.Groups) {
		if info := a.info(s, who); s.Works() && mayUse(who, s) && len(info.ModelRefs) > 0 {
			out = append(out, info)
		}
	}
	return ok(out), nil
}

func (a *API) listModelSubscriptions(req *http.Request, who Caller) (answer, error) {
	out := []subscriptionInfo{}
	if who.Username == "" {
		return ok(out), nil
	}
	for _, c := range a.Index.WithModel(who.Username, who.Groups, req.PathValue("model")) {
		if c.Allowed && mayUse(who, c.Subscription) {
			out = append(out, a.info(c.Subscription, who))
		}
	}
	return ok(out), nil
}
