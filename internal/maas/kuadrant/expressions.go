// SPDX-License-Identifier: Apache-2.0

package kuadrant

// Expressions in CEL over a request. Nothing is read that may be absent without asking for it first: an expression that fails
// is a rule that fails.

const (
	// bearerKey: the request has one of our keys where tokens are.
	bearerKey = `"authorization" in request.headers && request.headers["authorization"].startsWith("Bearer sk-oai-")`
	// headerKey: it has one in the header of the messages API, and none where tokens are.
	headerKey = `"x-api-key" in request.headers && request.headers["x-api-key"].startsWith("sk-oai-") && !(` + bearerKey + `)`
	// bearerJWT: it has a token of three parts.
	bearerJWT = `"authorization" in request.headers && request.headers["authorization"].matches("^Bearer [^.]+[.][^.]+[.][^.]+$")`

	segments = `request.url_path.split("/").filter(s, s != "")`
	// byPath: the path names a model as namespace and name.
	byPath = `size(` + segments + `) >= 2 && !(` + segments + `[0] in ["v1", "maas-api"])`
	// modelAvailable: it can be told which model is meant.
	modelAvailable = `(` + byPath + `) || "x-gateway-model-name" in request.headers`
	// modelIdentity is which one.
	modelIdentity = `((` + byPath + `) ? ` + segments + `[0] + "/" + ` + segments + `[1] : ` +
		`("x-gateway-model-name" in request.headers ? request.headers["x-gateway-model-name"] : ""))`

	// ofCluster tells a token that the API server vouched for: a provider's has an issuer, whatever else is in it.
	ofCluster = `(has(auth.identity.user) && !has(auth.identity.iss))`
	// tokenUser and tokenGroups are those of a token, be it of Kubernetes or of an identity provider.
	tokenUser = `(` + ofCluster + ` ? auth.identity.user.username : ` +
		`(has(auth.identity.preferred_username) ? auth.identity.preferred_username : (has(auth.identity.sub) ? auth.identity.sub : "")))`
	tokenGroups = `((` + ofCluster + ` ? (has(auth.identity.user.groups) ? auth.identity.user.groups : []) : ` +
		`(has(auth.identity.groups) ? auth.identity.groups : [])).filter(g, g != "system:authenticated") + ["system:authenticated"])`
)

// isKey tells whether the request shows one of our keys.
func (a Auth) isKey() string {
	if a.KeyHeader {
		return "(" + bearerKey + ") || (" + headerKey + ")"
	}
	return bearerKey
}

// rawKey is the key itself; only where isKey holds.
func (a Auth) rawKey() string {
	const bearer = `request.headers["authorization"].substring(7)`
	if a.KeyHeader {
		return `(` + bearerKey + ` ? ` + bearer + ` : request.headers["x-api-key"])`
	}
	return bearer
}

// fromOIDC tells tokens of an identity provider from those of Kubernetes.
func (a Auth) fromOIDC() string {
	return "!(" + a.isKey() + ") && has(auth.identity.iss)"
}

// validated is a field of what was said of the key.
func validated(field, otherwise string) string {
	path := "auth.metadata.apiKeyValidation." + field
	return `(has(auth.metadata.apiKeyValidation) && has(` + path + `) ? ` + path + ` : ` + otherwise + `)`
}

func (a Auth) either(key, token string) string {
	return `((` + a.isKey() + `) ? ` + key + ` : ` + token + `)`
}

func (a Auth) username() string { return a.either(validated("username", `""`), tokenUser) }
func (a Auth) userID() string   { return a.either(validated("userId", `""`), tokenUser) }
func (a Auth) groups() string   { return a.either(validated("groups", "[]"), tokenGroups) }

// subscription is the one that a key is bound to, or that a caller with a token asks for.
func (a Auth) subscription() string {
	const asked = `("x-maas-subscription" in request.headers ? request.headers["x-maas-subscription"] : "")`
	return a.either(validated("subscription", `""`), asked)
}

// asJSON writes a list of names, none of which has quotes, as JSON.
func asJSON(list string) string {
	return `(size(` + list + `) == 0 ? "[]" : "[\"" + ` + list + `.join("\",\"") + "\"]")`
}
