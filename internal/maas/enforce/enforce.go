// SPDX-License-Identifier: Apache-2.0

// Package enforce decides which requests go on to a model where no other policy engine does: who asks (an API key, a token of
// the cluster, a token of an identity provider), which subscription pays, whether a policy opens the model, whether tokens are
// left. It answers with the statuses and headers that clients know from gateways with Kuadrant, and counts what an answer has
// used.
//
// Nothing goes on by default. Whatever cannot be asked (the store of keys, the API server, the index of subscriptions, the
// counters) refuses with 503; only for the counters is there a setting. Credentials are in no error, log or answer.
package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/modelplane/modelplane/internal/maas/enforce/recall"
	"github.com/modelplane/modelplane/internal/maas/metering"
	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/quota"
)

// Identity is who asks.
type Identity struct {
	Username string
	Groups   []string
	// Subscription, KeyID and KeyName are of an API key; a token has none.
	Subscription, KeyID, KeyName string
}

// Keys checks API keys. It returns ErrRefused for one that may not be used.
type Keys interface {
	Validate(ctx context.Context, key string) (Identity, error)
}

// Tokens checks tokens that are no API keys. It returns ErrUnknown for one that nobody vouches for, and ErrRefused for one
// of somebody who may not come in with it.
type Tokens interface {
	Review(ctx context.Context, token string) (Identity, error)
}

// What is said of credentials. Any other error means that nobody could tell.
var (
	ErrUnknown = errors.New("nobody vouches for the credentials")
	ErrRefused = errors.New("the credentials are refused")
)

// Question is who asks for what; Subscription may be empty.
type Question struct {
	Username            string
	Groups              []string
	Subscription, Model string
}

// Selection is the subscription that pays.
type Selection struct {
	Namespace, Name string
	// Model is namespace/name.
	Model  string
	Limits []quota.Limit
	// Allowed tells that a policy opens the model to the caller.
	Allowed                    bool
	OrganizationID, CostCenter string
}

// Denial is why no subscription pays: a code that programs know, and a sentence.
type Denial struct{ Code, Message string }

func (d *Denial) Error() string { return d.Message }

// Selector finds the subscription that pays. It returns a *Denial if there is none; any other error means that it cannot
// tell, because it has not seen all subscriptions and policies yet, or sees them no more.
type Selector interface {
	Select(ctx context.Context, q Question) (Selection, error)
}

// Ledger counts tokens; see quota.Ledger.
type Ledger interface {
	Reserve(ctx context.Context, s quota.Subject, limits []quota.Limit, want quota.Tokens) (quota.Verdict, error)
	Settle(h quota.Hold, used quota.Tokens)
}

// Meter is told what was used and what was refused.
type Meter interface {
	Used(r metering.Record)
	Denied(tenant, reason string)
}

// Options of an Enforcer. All of the parts are needed but Tokens, Meter and Log.
type Options struct {
	// Tenant whose requests these are.
	Tenant   string
	Keys     Keys
	Tokens   Tokens
	Selector Selector
	Ledger   Ledger
	Meter    Meter
	Log      *slog.Logger
	// Expect is how many tokens an answer is expected to have that the request does not bound; 500 if zero. So many, or what the
	// request asks for, are held while it runs besides those of its prompt. See quota for what that bounds.
	Expect int64
	Now    func() time.Time
}

// Enforcer decides about the requests of one tenant.
type Enforcer struct{ Options }

var _ enforcer.Enforcer = (*Enforcer)(nil)

// New needs all parts: one that is missing would have to be taken for a permission.
func New(o Options) (*Enforcer, error) {
	if o.Tenant == "" || o.Keys == nil || o.Selector == nil || o.Ledger == nil {
		return nil, errors.New("the tenant, keys, subscriptions and counters are all needed to decide about requests")
	}
	if o.Expect <= 0 {
		o.Expect = 500
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Enforcer{o}, nil
}

// Decide is of enforcer.Enforcer. It has an answer to everything, also to what fails.
func (e *Enforcer) Decide(ctx context.Context, r enforcer.Request) (enforcer.Decision, error) {
	where, model := placeOf(r.Method, r.Path)
	switch where {
	case unclear:
		return e.refuse(http.StatusForbidden, "unauthorized", "the path can be read in more than one way; send it without dots, doubled or encoded slashes"), nil
	case internal:
		return e.refuse(http.StatusForbidden, "unauthorized", denied), nil
	case open:
		return enforcer.Decision{NoModel: true}, nil
	}
	if forged(r.Headers) != "" {
		return e.refuse(http.StatusForbidden, "unauthorized", "headers that begin with x-maas- tell who the caller is and are set by the gateway; send only X-MaaS-Subscription"), nil
	}
	who, refusal := e.identify(ctx, r.Headers)
	if refusal != nil {
		return *refusal, nil
	}
	wanted := who.Subscription
	if who.KeyID == "" {
		wanted = subscriptionOf(r.Headers)
	}
	if where == management {
		return enforcer.Decision{NoModel: true, Headers: e.headers(who, wanted)}, nil
	}
	if model == "" {
		model = r.Model
	}
	if model == "" { // without a body the header is all there is; routes are chosen by it
		model, _ = single(r.Headers.Values("X-Gateway-Model-Name"))
	}
	if model == "" { // no limit is for nothing in particular, and the default one is none at all
		return e.tooMany(time.Minute, "the request names no model, and there is no limit for such requests; name one in the body or in the path"), nil
	}
	return e.charge(ctx, r, who, Question{who.Username, who.Groups, wanted, model}, where == inference), nil
}

const denied = "access denied"

// identify tells who asks.
func (e *Enforcer) identify(ctx context.Context, h http.Header) (Identity, *enforcer.Decision) {
	refuse := func(d enforcer.Decision) (Identity, *enforcer.Decision) { return Identity{}, &d }
	ctx = recall.From(ctx, recall.Source(h, ""))
	var who Identity
	var err error
	switch c := credentialOf(h); {
	case c.kind == apiKey:
		who, err = e.Keys.Validate(ctx, c.text)
		if err == nil && (who.KeyID == "" || who.Subscription == "") {
			err = ErrRefused
		}
	case c.kind == token && e.Tokens != nil:
		who, err = e.Tokens.Review(ctx, c.text)
		who.KeyID, who.Subscription = "", ""
	default:
		err = ErrUnknown
	}
	switch {
	case errors.Is(err, ErrUnknown):
		d := e.refuse(http.StatusUnauthorized, authenticate, authenticate)
		d.Headers["www-authenticate"] = "Bearer"
		return refuse(d)
	case errors.Is(err, ErrRefused):
		return refuse(e.refuse(http.StatusForbidden, "unauthorized", denied))
	case err != nil:
		return refuse(e.unable(ctx, "credentials", err))
	case who.Username == "" || len(who.Username) > maxName || strings.ContainsFunc(who.Username, unicode.IsControl) || !isSafe(who.Groups):
		return refuse(e.refuse(http.StatusForbidden, "unauthorized", denied))
	}
	return who, nil
}

const authenticate = "Authentication required"

const maxName, maxGroups = 1024, 1024

var safe = regexp.MustCompile(`^[A-Za-z0-9:._/-]+$`)

// isSafe tells that groups can stand in a header for servers of all kinds.
func isSafe(groups []string) bool {
	for _, g := range groups {
		if len(g) > maxName || !safe.MatchString(g) {
			return false
		}
	}
	return len(groups) <= maxGroups
}

// charge asks for the subscription, the policy and the quota.
func (e *Enforcer) charge(ctx context.Context, r enforcer.Request, who Identity, q Question, counts bool) enforcer.Decision {
	chosen, err := e.Selector.Select(ctx, q)
	if denial, ok := errors.AsType[*Denial](err); ok {
		return e.refuse(http.StatusForbidden, denial.Code, denial.Message)
	}
	switch {
	case err != nil:
		return e.unable(ctx, "subscriptions", err)
	case chosen.Name == "" || chosen.Model == "":
		return e.unable(ctx, "subscriptions", errors.New("the answer names no subscription or no model"))
	case !chosen.Allowed:
		return e.refuse(http.StatusForbidden, "unauthorized", "no policy opens model "+chosen.Model+" to you; ask an administrator for a MaaSAuthPolicy that names you or one of your groups")
	}
	headers := e.headers(who, chosen.Name)
	if !counts {
		return enforcer.Decision{Headers: headers}
	}
	if len(chosen.Limits) == 0 {
		return e.tooMany(time.Minute, "the subscription has no limit for the model that could be checked")
	}
	subject := quota.Subject{User: who.Username, Subscription: chosen.Namespace + "/" + chosen.Name, Model: chosen.Model}
	verdict, err := e.Ledger.Reserve(ctx, subject, chosen.Limits, e.wanted(r, chosen.Limits))
	switch {
	case err != nil:
		return e.unable(ctx, "counters", err)
	case !verdict.Allowed:
		return e.overQuota(verdict)
	}
	return enforcer.Decision{Headers: headers, Report: e.report(r, who, chosen, verdict.Hold)}
}

// perToken is how many bytes of a body make a token, about.
const perToken = 4

// expected is what a request may use: its prompt, and as much as it asks for.
func (e *Enforcer) expected(r enforcer.Request) quota.Tokens {
	prompt, completion := int64(r.BodyBytes)/perToken, e.Expect
	switch {
	case r.Format == enforcer.Embeddings:
		completion = 0
	case r.MaxTokens > 0:
		completion = r.MaxTokens
	}
	return quota.Tokens{Prompt: prompt, Completion: completion, Total: prompt + completion}
}

// wanted is what a request holds: all of what it may use, if it says so; what is only guessed does not make others wait.
func (e *Enforcer) wanted(r enforcer.Request, limits []quota.Limit) quota.Tokens {
	out := e.expected(r)
	if r.MaxTokens == 0 {
		out.Completion = quota.Guess(limits, out.Completion)
		out.Total = out.Prompt + out.Completion
	}
	return out
}

// used is what a request is charged: what its answer says, if it came to its end or failed. Of one that was cut, or says
// nothing, it is what was delivered; to go away before the end is no way to use a model for nothing. Where nothing
// came at all it is the prompt and, unless it was to be a stream, which models stop when nobody reads it, what is usual.
func (e *Enforcer) used(r enforcer.Request, u enforcer.Usage) (out quota.Tokens, estimated bool) {
	out = quota.Tokens{Prompt: u.Prompt, Completion: u.Completion, Total: u.Total}
	good := u.Status == 0 || u.Status >= 200 && u.Status < 300
	switch {
	case !good && !u.Known:
		return quota.Tokens{}, false
	case u.Known && (u.Complete || !good):
		return out, false
	}
	expected := e.expected(r)
	if out.Prompt == 0 {
		out.Prompt = expected.Prompt
	}
	switch {
	case r.Format == enforcer.Embeddings:
	case u.Delivered > 0:
		out.Completion = max(out.Completion, u.Delivered)
	case !r.Stream && r.Method != http.MethodGet && r.Method != http.MethodHead:
		out.Completion = max(out.Completion, min(expected.Completion, e.Expect))
	}
	out.Total = max(out.Total, out.Prompt+out.Completion)
	return out, true
}

// report counts what an answer has used.
func (e *Enforcer) report(r enforcer.Request, who Identity, s Selection, hold quota.Hold) func(enforcer.Usage) {
	began := e.Now()
	r.Headers = nil // they are not needed for so long
	return func(u enforcer.Usage) {
		used, estimated := e.used(r, u)
		e.Ledger.Settle(hold, used)
		if e.Meter == nil {
			return
		}
		e.Meter.Used(metering.Record{
			Time: began, Tenant: e.Tenant, Subscription: s.Namespace + "/" + s.Name, Model: s.Model, KeyID: who.KeyID, Username: who.Username,
			OrganizationID: s.OrganizationID, CostCenter: s.CostCenter, Status: u.Status, Estimated: estimated,
			Prompt: used.Prompt, Completion: used.Completion, Total: max(used.Total, used.Prompt+used.Completion),
		})
	}
}

// headers tell the servers behind who asks. They replace what the client sent.
func (e *Enforcer) headers(who Identity, subscription string) map[string]string {
	groups := who.Groups
	if groups == nil {
		groups = []string{}
	}
	list, err := json.Marshal(groups)
	if err != nil { // texts can always be written
		list = []byte("[]")
	}
	out := map[string]string{"X-MaaS-Username": who.Username, "X-MaaS-Group": string(list)}
	if subscription != "" {
		out["X-MaaS-Subscription"] = subscription
	}
	return out
}

func (e *Enforcer) refuse(status int, reason, message string) enforcer.Decision {
	if e.Meter != nil {
		e.Meter.Denied(e.Tenant, reason)
	}
	return enforcer.Decision{
		Status: status, Message: message, Code: reason, Body: []byte(message), ContentType: "text/plain",
		Headers: map[string]string{"x-ext-auth-reason": inHeader(reason)},
	}
}

// inHeader keeps what may stand in a header.
func inHeader(text string) string {
	out := make([]byte, 0, len(text))
	for i := range min(len(text), 256) {
		if text[i] >= ' ' && text[i] < 0x7f {
			out = append(out, text[i])
		}
	}
	return string(out)
}

// unable is the answer while nobody can tell.
func (e *Enforcer) unable(ctx context.Context, what string, err error) enforcer.Decision {
	e.Log.WarnContext(ctx, "A request was refused because nobody could tell whether it may go on", "missing", what, "err", err.Error())
	d := e.refuse(http.StatusServiceUnavailable, "internal_error", "it cannot be told now whether this is permitted; try again")
	d.Headers["retry-after"] = "1"
	return d
}

func (e *Enforcer) overQuota(v quota.Verdict) enforcer.Decision {
	message := "the limit of " + strconv.FormatInt(v.Refused.Tokens, 10) + " tokens in " + v.Refused.Window.String() + " is used up"
	if v.Busy {
		message = "what is left of the limit is held by requests that are running"
	}
	return e.tooMany(v.RetryAfter, message)
}

// tooMany says in the shape of the client's API what is used up, and when to come back.
func (e *Enforcer) tooMany(wait time.Duration, message string) enforcer.Decision {
	if e.Meter != nil {
		e.Meter.Denied(e.Tenant, "rate_limited")
	}
	seconds := int64(math.Ceil(wait.Seconds()))
	return enforcer.Decision{
		Status: http.StatusTooManyRequests, Message: message, Code: "rate_limit_exceeded",
		Headers: map[string]string{"retry-after": strconv.FormatInt(max(seconds, 1), 10)},
	}
}
