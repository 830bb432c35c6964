// SPDX-License-Identifier: Apache-2.0

package kuadrant

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/pass"
)

// Auth is what the policy of a gateway depends on. Who may use which model is asked for at each request, so that the policy
// has the same size whatever the number of tenants' objects.
type Auth struct {
	Namespace, Gateway, Name string
	// API is the address of the tenant's service that knows keys and subscriptions.
	API string
	// Pass is the Secret beside Kuadrant's own objects from which that service is shown who asks.
	Pass string
	// Audience of tokens of Kubernetes.
	Audience string
	OIDC     *v1alpha1.OIDCConfig
	// KeyHeader accepts keys in the header x-api-key too, as clients of the messages API send them.
	KeyHeader bool
	// MetadataTTL and AuthorizationTTL are for how many seconds an answer is believed; 0 for never.
	MetadataTTL, AuthorizationTTL int
}

// PassKey is where a Secret has a pass.
const PassKey = "pass"

// groupPattern is what names of groups are made of.
const groupPattern = `^[A-Za-z0-9:._/-]+$`

// Policy asks everybody at a gateway for credentials.
//
// A key is never what an answer is remembered by, so that no key is kept in memory there; whether a key is valid is asked for
// at each request, which the service answers from memory, and a revoked key is refused at once.
func (a Auth) Policy() *unstructured.Unstructured {
	return object(AuthPolicy, a.Namespace, a.Name, map[string]string{
		naming.LabelManagedBy: naming.ManagedBy, naming.LabelPartOf: "maas-gateway-auth", naming.LabelComponent: "gateway-auth",
	}, map[string]any{
		"targetRef": targetRef("Gateway", a.Gateway),
		"defaults": map[string]any{
			"when": when(`!(request.method == "GET" && request.url_path == "/maas-api/health")`),
			"rules": map[string]any{
				"authentication": a.authentication(),
				"metadata":       a.metadata(),
				"authorization":  a.authorization(),
				"response":       a.response(),
			},
		},
	})
}

// evaluator is one rule; none of them has metrics of its own.
func evaluator(priority int64, more map[string]any, predicates ...string) map[string]any {
	more["priority"], more["metrics"] = priority, false
	if len(predicates) > 0 {
		more["when"] = when(predicates...)
	}
	return more
}

func (a Auth) authentication() map[string]any {
	out := map[string]any{
		"api-keys": evaluator(0, map[string]any{"plain": map[string]any{"selector": "request.headers.authorization"}}, bearerKey),
		"openshift-identities": evaluator(2, map[string]any{"kubernetesTokenReview": map[string]any{"audiences": []any{a.Audience}}}, //nolint:mnd // after all others
			"!("+a.isKey()+")"),
	}
	if a.KeyHeader {
		out["api-keys-x-api-key"] = evaluator(1, map[string]any{"plain": map[string]any{"selector": "request.headers.x-api-key"}}, headerKey)
	}
	if a.OIDC != nil {
		const ttl = 300
		out["oidc-identities"] = evaluator(1, map[string]any{"jwt": map[string]any{
			"issuerUrl": a.OIDC.IssuerURL, "ttl": int64(ptr.Deref(a.OIDC.TTL, ttl)),
		}}, "!("+a.isKey()+")", bearerJWT)
	}
	return out
}

func (a Auth) metadata() map[string]any {
	validation := evaluator(0, map[string]any{"http": a.post("/internal/v1/api-keys/validate", `{"key": `+a.rawKey()+`}`)}, a.isKey())
	info := evaluator(1, map[string]any{"http": a.post("/internal/v1/subscriptions/select", fmt.Sprintf(
		`{"groups": %s, "username": %s, "requestedSubscription": %s, "requestedModel": %s}`,
		a.groups(), a.username(), a.subscription(), modelIdentity))}, modelAvailable)
	a.remember(info, a.MetadataTTL)
	return map[string]any{"apiKeyValidation": validation, "subscription-info": info}
}

// post asks the tenant's service. The policy only names the Secret with what is shown; Authorino reads it in its own namespace.
func (a Auth) post(path, body string) map[string]any {
	return map[string]any{
		"url": a.API + path, "method": "POST", "contentType": "application/json", "body": map[string]any{"expression": body},
		"sharedSecretRef": map[string]any{"name": a.Pass, "key": PassKey},
		"credentials":     map[string]any{"customHeader": map[string]any{"name": pass.Header}},
	}
}

// remember keeps an answer by who asked for what.
func (a Auth) remember(rule map[string]any, ttl int) {
	if ttl <= 0 {
		return
	}
	key := fmt.Sprintf(`%s + "|" + %s.join(",") + "|" + %s + "|" + %s`, a.userID(), a.groups(), a.subscription(), modelIdentity)
	rule["cache"] = map[string]any{"key": map[string]any{"expression": key}, "ttl": int64(ttl)}
}

func (a Auth) authorization() map[string]any {
	valid := evaluator(0, rego(`object.get(input, ["auth", "metadata", "apiKeyValidation", "valid"], false) == true`), a.isKey())
	subscribed := evaluator(0, rego(`count([x | x := object.get(input, ["auth", "metadata", "subscription-info"], {}); `+
		`object.get(x, "name", "") != ""; object.get(x, "error", "") == ""; `+
		`{"Active", "Degraded"}[object.get(x, "phase", "")]; object.get(x, "deletionTimestamp", "") == ""]) == 1`), modelAvailable)
	member := evaluator(0, rego(`object.get(input, ["auth", "metadata", "subscription-info", "accessAllowed"], false) == true`), modelAvailable)
	a.remember(subscribed, a.AuthorizationTTL)
	a.remember(member, a.AuthorizationTTL)
	out := map[string]any{
		"deny-client-identity-headers": evaluator(0, patterns(`!("x-maas-username" in request.headers)`, `!("x-maas-group" in request.headers)`)),
		"auth-valid":                   valid,
		"subscription-valid":           subscribed,
		"require-group-membership":     member,
	}
	if a.OIDC != nil {
		out["oidc-groups-safe"] = evaluator(0, patterns(`!has(auth.identity.groups) || auth.identity.groups.all(g, g.matches("`+groupPattern+`"))`), a.fromOIDC())
		out["oidc-names-safe"] = evaluator(0, patterns(tokenUser+` != ""`, `!(`+reserved(tokenUser)+`)`,
			`!has(auth.identity.groups) || !auth.identity.groups.exists(g, `+reserved("g")+`)`), a.fromOIDC())
		out["oidc-client-bound"] = evaluator(1, patterns(a.madeOutFor(a.OIDC.ClientID)), a.fromOIDC())
	}
	return out
}

// madeOutFor asks that a token was made out for the client: by the claim azp, or where there is none, by its audience.
func (a Auth) madeOutFor(client string) string {
	c := strconv.Quote(client)
	return `has(auth.identity.azp) ? auth.identity.azp == ` + c +
		` : has(auth.identity.aud) && (type(auth.identity.aud) == list ? ` + c + ` in auth.identity.aud : auth.identity.aud == ` + c + `)`
}

// reserved tells whether a name is one that only Kubernetes gives: whoever is known by it somewhere could take it for the
// cluster's own word.
func reserved(name string) string {
	return name + `.lowerAscii().startsWith("system:") || ` + name + `.lowerAscii().startsWith("kube:")`
}

// rego is a rule that means the same in both versions of the language.
func rego(allowed string) map[string]any {
	return map[string]any{"opa": map[string]any{"rego": "allow = " + allowed}}
}

func patterns(predicates ...string) map[string]any {
	return map[string]any{"patternMatching": map[string]any{"patterns": when(predicates...)}}
}

func (a Auth) response() map[string]any {
	return map[string]any{
		"success":         map[string]any{"headers": a.headers(), "filters": map[string]any{"identity": a.identity()}},
		"unauthenticated": map[string]any{"code": int64(401), "message": map[string]any{"value": "Authentication required"}},
		"unauthorized":    a.refusal(),
	}
}

func expression(e string) map[string]any { return map[string]any{"expression": e} }

// headers tell the services behind the gateway who asks.
func (a Auth) headers() map[string]any {
	plain := func(key, e string, predicates ...string) map[string]any {
		return evaluator(0, map[string]any{"key": key, "plain": expression(e)}, predicates...)
	}
	token := "!(" + a.isKey() + ")"
	return map[string]any{
		"X-MaaS-Username":       plain("X-MaaS-Username", validated("username", `""`), a.isKey()),
		"X-MaaS-Group":          plain("X-MaaS-Group", asJSON(validated("groups", "[]")), a.isKey()),
		"X-MaaS-Username-Token": plain("X-MaaS-Username", tokenUser, token),
		"X-MaaS-Group-Token":    plain("X-MaaS-Group", asJSON(tokenGroups), token),
		"X-MaaS-Subscription":   plain("X-MaaS-Subscription", a.subscription(), a.subscription()+` != ""`),
	}
}

// identity is what limits and measurements go by.
func (a Auth) identity() map[string]any {
	info := func(field string) string {
		path := `auth.metadata["subscription-info"]`
		return `"subscription-info" in auth.metadata && has(` + path + "." + field + `) ? ` + path + "." + field + ` : ""`
	}
	selected := `"subscription-info" in auth.metadata && has(auth.metadata["subscription-info"].name) ? ` +
		`auth.metadata["subscription-info"].namespace + "/" + auth.metadata["subscription-info"].name + "@" + ` +
		`(has(auth.metadata["subscription-info"].resolvedModel) ? auth.metadata["subscription-info"].resolvedModel : ` + modelIdentity + `) : ""`
	properties := map[string]any{
		"groups":                     expression(a.groups()),
		"groups_str":                 expression(a.groups() + `.join(",")`),
		"userid":                     expression(a.username()),
		"keyId":                      expression(validated("keyId", `""`)),
		"keyName":                    expression(validated("keyName", `""`)),
		"selected_subscription":      expression(info("name")),
		"selected_subscription_key":  expression(selected),
		"subscription_info":          expression(`"subscription-info" in auth.metadata ? auth.metadata["subscription-info"] : {}`),
		"subscription_error":         expression(info("error")),
		"subscription_error_message": expression(info("message")),
	}
	return map[string]any{"priority": int64(0), "metrics": true, "json": map[string]any{"properties": properties}}
}

func (a Auth) refusal() map[string]any {
	field := func(name, otherwise string) string {
		path := `auth.metadata["subscription-info"].` + name
		return `"subscription-info" in auth.metadata && has(` + path + `) && ` + path + ` != "" ? ` + path + ` : "` + otherwise + `"`
	}
	return map[string]any{
		"code": int64(403),
		"body": expression(field("message", "Access denied")),
		"headers": map[string]any{
			"x-ext-auth-reason": expression(field("error", "unauthorized")),
			"content-type":      map[string]any{"value": "text/plain"},
		},
	}
}
