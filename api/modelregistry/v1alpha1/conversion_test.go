// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	"github.com/modelplane/modelplane/api/internal/roundtrip"
	"github.com/modelplane/modelplane/api/modelregistry/v1alpha1"
	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
)

var (
	_ conversion.Convertible = &v1alpha1.ModelRegistry{}
	_ conversion.Hub         = &v1beta1.ModelRegistry{}
)

// toBeta converts and sends the result through JSON, as the API server does.
func toBeta(t *testing.T, in *v1alpha1.ModelRegistry) *v1beta1.ModelRegistry {
	t.Helper()
	before, out := in.DeepCopy(), &v1beta1.ModelRegistry{}
	if err := in.ConvertTo(out); err != nil {
		t.Fatalf("to v1beta1: %v", err)
	}
	if diff := cmp.Diff(before, in); diff != "" {
		t.Fatalf("the conversion changed its input (-before +after):\n%s", diff)
	}
	return throughJSON(t, out, &v1beta1.ModelRegistry{})
}

func toAlpha(t *testing.T, in *v1beta1.ModelRegistry) *v1alpha1.ModelRegistry {
	t.Helper()
	before, out := in.DeepCopy(), &v1alpha1.ModelRegistry{}
	if err := out.ConvertFrom(in); err != nil {
		t.Fatalf("from v1beta1: %v", err)
	}
	if diff := cmp.Diff(before, in); diff != "" {
		t.Fatalf("the conversion changed its input (-before +after):\n%s", diff)
	}
	return throughJSON(t, out, &v1alpha1.ModelRegistry{})
}

func throughJSON[T any](t *testing.T, in, out T) T {
	t.Helper()
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// nilChances makes objects with everything, with some things and with next to nothing in them.
var nilChances = []float64{0, 0.3, 0.8}

func TestV1alpha1ComesBackWhole(t *testing.T) {
	for seed := range int64(300) {
		in := &v1alpha1.ModelRegistry{}
		roundtrip.Filler(seed, nilChances[seed%3]).Fill(in)
		if diff := cmp.Diff(in, toAlpha(t, toBeta(t, in)), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: v1alpha1 to v1beta1 and back (-before +after):\n%s", seed, diff)
		}
	}
}

func TestV1beta1ComesBackWhole(t *testing.T) {
	for seed := range int64(300) {
		in := &v1beta1.ModelRegistry{}
		roundtrip.Filler(seed, nilChances[seed%3]).Fill(in)
		if diff := cmp.Diff(in, toBeta(t, toAlpha(t, in)), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: v1beta1 to v1alpha1 and back (-before +after):\n%s", seed, diff)
		}
	}
}

func TestIstioBecomesProxy(t *testing.T) {
	proxy := func(route v1beta1.Toggle, domain string, routePort int32) *v1beta1.OAuthProxy {
		return &v1beta1.OAuthProxy{Port: new(int32(8443)), ServiceRoute: route, Domain: domain, RoutePort: &routePort}
	}
	gateway := func(rest v1alpha1.GatewayServer) *v1alpha1.Istio {
		return &v1alpha1.Istio{Gateway: &v1alpha1.Gateway{Domain: "example.com", Rest: rest}}
	}
	for _, tc := range []struct {
		name  string
		istio *v1alpha1.Istio
		want  *v1beta1.OAuthProxy
	}{
		{"none", nil, nil},
		{"no gateway", &v1alpha1.Istio{}, proxy(v1beta1.Disabled, "", 443)},
		{"plain gateway", gateway(v1alpha1.GatewayServer{Port: new(int32(8080))}), proxy(v1beta1.Enabled, "example.com", 443)},
		{"gateway without route", gateway(v1alpha1.GatewayServer{GatewayRoute: v1alpha1.Disabled}), proxy(v1beta1.Disabled, "example.com", 443)},
		{
			"gateway with its own port",
			gateway(v1alpha1.GatewayServer{Port: new(int32(9443)), TLS: &v1alpha1.GatewayTLS{}}),
			proxy(v1beta1.Enabled, "example.com", 9443),
		},
		{"gateway with the usual port", gateway(v1alpha1.GatewayServer{TLS: &v1alpha1.GatewayTLS{}}), proxy(v1beta1.Enabled, "example.com", 443)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := &v1alpha1.ModelRegistry{Spec: v1alpha1.ModelRegistrySpec{Istio: tc.istio}}
			got := toBeta(t, in)
			if diff := cmp.Diff(tc.want, got.Spec.OAuthProxy); diff != "" {
				t.Errorf("proxy (-want +got):\n%s", diff)
			}
		})
	}
}

// TestChangesGoBeforeWhatWasKept edits the converted object in between, as a person does who works with one version
// on a registry that was written in the other.
func TestChangesGoBeforeWhatWasKept(t *testing.T) {
	viaAlpha := func(t *testing.T, spec v1beta1.ModelRegistrySpec, edit func(*v1alpha1.ModelRegistry)) v1beta1.ModelRegistrySpec {
		seen := toAlpha(t, &v1beta1.ModelRegistry{Spec: spec})
		edit(seen)
		return toBeta(t, seen).Spec
	}
	grpc := &v1beta1.Grpc{Port: new(int32(9090))}

	t.Run("a kubeRBACProxy is edited as the proxy it is", func(t *testing.T) {
		got := viaAlpha(t, v1beta1.ModelRegistrySpec{Grpc: grpc, KubeRBACProxy: &v1beta1.KubeRBACProxy{Domain: "old", Image: "proxy:1"}},
			func(r *v1alpha1.ModelRegistry) { r.Spec.OAuthProxy.Domain = "new" })
		want := v1beta1.ModelRegistrySpec{Grpc: grpc, KubeRBACProxy: &v1beta1.KubeRBACProxy{Domain: "new", Image: "proxy:1"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("a removed proxy stays away", func(t *testing.T) {
		got := viaAlpha(t, v1beta1.ModelRegistrySpec{KubeRBACProxy: &v1beta1.KubeRBACProxy{}},
			func(r *v1alpha1.ModelRegistry) { r.Spec.OAuthProxy = nil })
		if got.KubeRBACProxy != nil || got.OAuthProxy != nil {
			t.Errorf("a proxy came back: %+v", got)
		}
	})
	t.Run("a host ends the generated database", func(t *testing.T) {
		got := viaAlpha(t, v1beta1.ModelRegistrySpec{Postgres: &v1beta1.Postgres{GenerateDeployment: new(true)}},
			func(r *v1alpha1.ModelRegistry) { r.Spec.Postgres.Host = "db" })
		if got.Postgres.GenerateDeployment != nil {
			t.Errorf("generateDeployment is kept beside a host: %+v", got.Postgres)
		}
	})
	t.Run("a removed database stays away", func(t *testing.T) {
		got := viaAlpha(t, v1beta1.ModelRegistrySpec{Postgres: &v1beta1.Postgres{GenerateDeployment: new(true)}},
			func(r *v1alpha1.ModelRegistry) { r.Spec.Postgres = nil })
		if got.Postgres != nil {
			t.Errorf("the database came back: %+v", got.Postgres)
		}
	})
	t.Run("the default port does not bring grpc into being", func(t *testing.T) {
		got := viaAlpha(t, v1beta1.ModelRegistrySpec{}, func(r *v1alpha1.ModelRegistry) { r.Spec.Grpc.Port = new(int32(9090)) })
		if got.Grpc != nil {
			t.Errorf("grpc = %+v", got.Grpc)
		}
	})
	t.Run("another port does", func(t *testing.T) {
		got := viaAlpha(t, v1beta1.ModelRegistrySpec{}, func(r *v1alpha1.ModelRegistry) { r.Spec.Grpc.Port = new(int32(1)) })
		if diff := cmp.Diff(&v1beta1.Grpc{Port: new(int32(1))}, got.Grpc); diff != "" {
			t.Errorf("grpc (-want +got):\n%s", diff)
		}
	})
}

func TestIstioIsShownWhileItsStandInRuns(t *testing.T) {
	istio := &v1alpha1.Istio{AuthProvider: "authorino", Gateway: &v1alpha1.Gateway{Domain: "example.com"}}
	for _, tc := range []struct {
		name string
		edit func(*v1beta1.ModelRegistrySpec)
		want *v1alpha1.Istio
	}{
		{"untouched", func(*v1beta1.ModelRegistrySpec) {}, istio},
		{"moved to kubeRBACProxy", func(s *v1beta1.ModelRegistrySpec) {
			s.KubeRBACProxy, s.OAuthProxy = (*v1beta1.KubeRBACProxy)(s.OAuthProxy), nil
		}, istio},
		{"changed", func(s *v1beta1.ModelRegistrySpec) { s.OAuthProxy.Domain = "elsewhere.com" }, nil},
		{"removed", func(s *v1beta1.ModelRegistrySpec) { s.OAuthProxy = nil }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stored := toBeta(t, &v1alpha1.ModelRegistry{Spec: v1alpha1.ModelRegistrySpec{Istio: istio}})
			tc.edit(&stored.Spec)
			shown := toAlpha(t, stored)
			if diff := cmp.Diff(tc.want, shown.Spec.Istio); diff != "" {
				t.Errorf("istio (-want +got):\n%s", diff)
			}
			if again := toBeta(t, shown); !cmp.Equal(stored.Spec, again.Spec) {
				t.Errorf("writing what was shown changes the registry (-before +after):\n%s", cmp.Diff(stored.Spec, again.Spec))
			}
		})
	}
}

func TestUnreadableAnnotationsAreDropped(t *testing.T) {
	for _, text := range []string{"", "{", `"x"`, `{"proxyIsKubeRBAC":true,"postgres":7}`, `{"istio":[]}`} {
		meta := metav1.ObjectMeta{Annotations: map[string]string{
			v1alpha1.KeptFromV1beta1: text, v1alpha1.KeptFromV1alpha1: text, "other": "stays",
		}}
		beta := toBeta(t, &v1alpha1.ModelRegistry{
			ObjectMeta: *meta.DeepCopy(),
			Spec:       v1alpha1.ModelRegistrySpec{OAuthProxy: &v1alpha1.OAuthProxy{Domain: "example.com"}},
		})
		if diff := cmp.Diff(map[string]string{"other": "stays"}, beta.Annotations); diff != "" {
			t.Errorf("%q to v1beta1: annotations (-want +got):\n%s", text, diff)
		}
		if beta.Spec.OAuthProxy == nil || beta.Spec.KubeRBACProxy != nil {
			t.Errorf("%q changed the proxy: %+v", text, beta.Spec)
		}
		alpha := toAlpha(t, &v1beta1.ModelRegistry{ObjectMeta: *meta.DeepCopy(), Spec: v1beta1.ModelRegistrySpec{Grpc: &v1beta1.Grpc{}}})
		if diff := cmp.Diff(map[string]string{"other": "stays"}, alpha.Annotations); diff != "" {
			t.Errorf("%q to v1alpha1: annotations (-want +got):\n%s", text, diff)
		}
	}
}

// strangeHub is a hub of some other kind.
type strangeHub struct{ *v1beta1.ModelRegistry }

func TestStrangeHubIsRefused(t *testing.T) {
	r := &v1alpha1.ModelRegistry{}
	if err := r.ConvertTo(strangeHub{}); err == nil {
		t.Error("ConvertTo accepted a strange hub")
	}
	if err := r.ConvertFrom(strangeHub{}); err == nil {
		t.Error("ConvertFrom accepted a strange hub")
	}
}

// FuzzConversion: whatever a manifest says, in either version, is there again when it was shown in the other.
func FuzzConversion(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a"},"spec":{"rest":{"port":1},"grpc":{},"istio":{"gateway":{"domain":"x","rest":{"tls":{}},"grpc":{}}}}}`))
	f.Add([]byte(`{"spec":{"rest":{},"postgres":{"generateDeployment":true,"image":"i"},"kubeRBACProxy":{"port":1},"oauthProxy":{"image":"o"}}}`))
	f.Add([]byte(`{"spec":{"rest":{},"grpc":{"port":9090},"mysql":{"host":"h","sslCipher":"c","verifyServerCert":false}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		former, present := &v1alpha1.ModelRegistry{}, &v1beta1.ModelRegistry{}
		if json.Unmarshal(data, former) != nil || json.Unmarshal(data, present) != nil {
			t.Skip()
		}
		for _, o := range []metav1.Object{former, present} { // these are the conversion's own
			annotations := o.GetAnnotations()
			delete(annotations, v1alpha1.KeptFromV1alpha1)
			delete(annotations, v1alpha1.KeptFromV1beta1)
		}
		former, present = throughJSON(t, former, &v1alpha1.ModelRegistry{}), throughJSON(t, present, &v1beta1.ModelRegistry{})
		former.TypeMeta, present.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
		if diff := cmp.Diff(former, toAlpha(t, toBeta(t, former)), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("v1alpha1 to v1beta1 and back (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(present, toBeta(t, toAlpha(t, present)), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("v1beta1 to v1alpha1 and back (-before +after):\n%s", diff)
		}
	})
}
