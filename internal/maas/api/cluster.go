// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/modelplane/modelplane/internal/maas/enforce/recall"
)

// How long answers of the API server are believed. A token that was withdrawn is accepted so much longer;
// a refusal is asked for again sooner.
const (
	believeYes = 30 * time.Second
	believeNo  = 10 * time.Second
	askTime    = 5 * time.Second
	maxToken   = 16 << 10
)

// Cluster asks the Kubernetes API server who somebody is and what they may.
type Cluster struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Namespace of the subscriptions: who may make auth policies there is an administrator.
	Namespace string
	// Audiences that a token must be for; empty: the API server's own.
	Audiences []string
	// GatewayName and GatewayNamespace of the tenant.
	GatewayName, GatewayNamespace string

	tokens *recall.Memory[*Caller]
	admins *memory[bool]
}

// NewCluster remembers so many answers about administrators.
func NewCluster(c Cluster, admins int) *Cluster {
	c.tokens, c.admins = recall.New[*Caller](), newMemory[bool](admins)
	return &c
}

// Metrics of what was remembered.
func (c *Cluster) Metrics(registry prometheus.Registerer) {
	registry.MustRegister(
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "sar_cache_hits_total", Help: "Questions after administrators that were answered from memory."}, func() float64 { return float64(c.admins.hits.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "sar_cache_misses_total", Help: "Questions after administrators that the API server was asked."}, func() float64 { return float64(c.admins.misses.Load()) }),
	)
}

// Review is a Reviewer.
func (c *Cluster) Review(ctx context.Context, token string) (*Caller, error) {
	if len(token) > maxToken {
		return nil, nil //nolint:nilnil // it is nobody's
	}
	return c.tokens.Get(ctx, token, func(ctx context.Context) recall.Answer[*Caller] {
		review, err := c.Client.AuthenticationV1().TokenReviews().Create(ctx,
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: c.Audiences}}, metav1.CreateOptions{})
		switch {
		case err != nil:
			return recall.Answer[*Caller]{Err: fmt.Errorf("ask the API server whose token it is: %w", err)}
		case !review.Status.Authenticated || review.Status.User.Username == "":
			return recall.Answer[*Caller]{For: believeNo}
		}
		return recall.Answer[*Caller]{Value: &Caller{Username: review.Status.User.Username, Groups: review.Status.User.Groups}, Good: true, For: believeYes}
	})
}

// Admin tells whether somebody may make auth policies beside the subscriptions.
func (c *Cluster) Admin(ctx context.Context, who Caller) (bool, error) {
	if who.Username == "" {
		return false, nil
	}
	groups := slices.Sorted(slices.Values(who.Groups))
	return c.admins.get(ctx, who.Username+"\x00"+strings.Join(groups, "\x00"), func(ctx context.Context) (bool, time.Duration, error) {
		may, err := c.may(ctx, who, &authorizationv1.ResourceAttributes{Namespace: c.Namespace, Verb: "create", Group: "maas.opendatahub.io", Resource: "maasauthpolicies"})
		if may {
			return true, believeYes, err
		}
		return false, believeNo, err
	})
}

func (c *Cluster) may(ctx context.Context, who Caller, what *authorizationv1.ResourceAttributes) (bool, error) {
	review, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: who.Username, Groups: who.Groups, ResourceAttributes: what},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask the API server what somebody may: %w", err)
	}
	return review.Status.Allowed, nil
}

// Known is for lists of tenants: everybody whom the cluster knows may ask it about themselves.
func (c *Cluster) Known(ctx context.Context, token string) (*Caller, bool, error) {
	who, err := c.Review(ctx, token)
	if err != nil || who == nil {
		return nil, false, err
	}
	may, err := c.may(ctx, Caller{Username: who.Username, Groups: withAuthenticated(who.Groups)},
		&authorizationv1.ResourceAttributes{Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"})
	return who, may, err
}

var gateways = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}

// Gateway reads the tenant's Gateway: its listener with TLS before others, and the name or address by which it is reached.
func (c *Cluster) Gateway(ctx context.Context) (Gateway, error) {
	found, err := c.Dynamic.Resource(gateways).Namespace(c.GatewayNamespace).Get(ctx, c.GatewayName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Gateway{}, fmt.Errorf("%w: %s/%s", ErrNoGateway, c.GatewayNamespace, c.GatewayName)
	}
	if err != nil {
		return Gateway{}, err
	}
	return gatewayOf(found), nil
}

func gatewayOf(found *unstructured.Unstructured) Gateway {
	out := Gateway{Name: found.GetName(), Namespace: found.GetNamespace()}
	listeners, _, _ := unstructured.NestedSlice(found.Object, "spec", "listeners") // one without any has no address
	host := ""
	for _, l := range listeners {
		fields, _ := l.(map[string]any)
		protocol, _ := fields["protocol"].(string)
		if out.Protocol != "" && (out.Protocol == "HTTPS" || protocol != "HTTPS") {
			continue
		}
		out.Protocol = protocol
		port, _ := fields["port"].(int64)
		out.Port = int32(port)
		host, _ = fields["hostname"].(string)
	}
	addresses, _, _ := unstructured.NestedSlice(found.Object, "status", "addresses") // not there before it has one
	for _, a := range addresses {
		fields, _ := a.(map[string]any)
		value, _ := fields["value"].(string)
		host = cmp.Or(host, value)
	}
	if host != "" && out.Protocol != "" {
		out.ExternalURL = fmt.Sprintf("%s://%s", strings.ToLower(out.Protocol), strings.TrimPrefix(host, "*."))
		if usual := map[string]int32{"HTTP": 80, "HTTPS": 443}[out.Protocol]; out.Port != usual {
			out.ExternalURL += fmt.Sprintf(":%d", out.Port)
		}
	}
	return out
}

// memory keeps answers for a while. Of several who ask the same at once, one asks for all; when it is full, any answer makes
// room. What is asked about is not kept, only a digest: it may be a token.
type memory[T any] struct {
	size         int
	now          func() time.Time
	hits, misses atomic.Uint64
	asking       singleflight.Group

	mu    sync.Mutex
	known map[[sha256.Size]byte]remembered[T]
}

type remembered[T any] struct {
	answer T
	until  time.Time
}

func newMemory[T any](size int) *memory[T] {
	return &memory[T]{size: max(size, 1), now: time.Now, known: map[[sha256.Size]byte]remembered[T]{}}
}

func (m *memory[T]) get(ctx context.Context, about string, ask func(context.Context) (T, time.Duration, error)) (T, error) {
	key := sha256.Sum256([]byte(about))
	m.mu.Lock()
	r, ok := m.known[key]
	m.mu.Unlock()
	if ok && m.now().Before(r.until) {
		m.hits.Add(1)
		return r.answer, nil
	}
	m.misses.Add(1)
	// The one who asks may go away before the others: the question goes on without them.
	result := m.asking.DoChan(string(key[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		answer, believe, err := ask(ctx)
		if err == nil {
			m.keep(key, remembered[T]{answer, m.now().Add(believe)})
		}
		return answer, err
	})
	var none T
	select {
	case <-ctx.Done():
		return none, ctx.Err()
	case r := <-result:
		if r.Err != nil {
			return none, r.Err
		}
		answer, _ := r.Val.(T) // it is one
		return answer, nil
	}
}

func (m *memory[T]) keep(key [sha256.Size]byte, r remembered[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for old := range m.known {
		if len(m.known) < m.size {
			break
		}
		delete(m.known, old)
	}
	m.known[key] = r
}
