// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// TestSign has the examples of the documentation of AWS.
func TestSign(t *testing.T) {
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	k := Keys{ID: "AKIAIOSFODNN7EXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	for _, c := range []struct{ url, rang, signed, want string }{
		{"https://examplebucket.s3.amazonaws.com/test.txt", "bytes=0-9", "host;range;x-amz-content-sha256;x-amz-date",
			"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"https://examplebucket.s3.amazonaws.com/?lifecycle=", "", "host;x-amz-content-sha256;x-amz-date",
			"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"https://examplebucket.s3.amazonaws.com/?" + query(url.Values{"prefix": {"J"}, "max-keys": {"2"}}), "", "host;x-amz-content-sha256;x-amz-date",
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if c.rang != "" {
			request.Header.Set("Range", c.rang)
		}
		request.Header.Set("User-Agent", "changed on the way")
		Sign(request, k, defaultRegion, at)
		want := "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=" + c.signed + ",Signature=" + c.want
		if got := request.Header.Get("Authorization"); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", c.url, got, want)
		}
	}
}

func TestAddress(t *testing.T) {
	for _, c := range []struct {
		name        string
		env         map[string]string
		bucket, key string
		want        string
	}{
		{"AWS", nil, "b", "k", "https://b.s3.us-east-1.amazonaws.com/k"},
		{"a region", map[string]string{"AWS_DEFAULT_REGION": "eu-west-1"}, "b", "k", "https://b.s3.eu-west-1.amazonaws.com/k"},
		{"another variable for it", map[string]string{"AWS_REGION": "eu-west-1"}, "b", "k", "https://b.s3.eu-west-1.amazonaws.com/k"},
		{"China", map[string]string{"AWS_DEFAULT_REGION": "cn-north-1"}, "b", "k", "https://b.s3.cn-north-1.amazonaws.com.cn/k"},
		{"dots", nil, "a.b", "k", "https://s3.us-east-1.amazonaws.com/a.b/k"},
		{"accelerated", map[string]string{"S3_USE_ACCELERATE": "true"}, "b", "k", "https://b.s3-accelerate.amazonaws.com/k"},
		{"an endpoint", map[string]string{"S3_ENDPOINT": "minio:9000"}, "b", "k", "https://minio:9000/b/k"},
		{"open", map[string]string{"S3_ENDPOINT": "minio:9000", "S3_USE_HTTPS": "0"}, "b", "k", "http://minio:9000/b/k"},
		{"a scheme says it", map[string]string{"S3_ENDPOINT": "http://minio", "S3_USE_HTTPS": "1"}, "b", "k", "http://minio/b/k"},
		{"a full address", map[string]string{"AWS_ENDPOINT_URL": "https://minio/s3/", "S3_ENDPOINT": "other"}, "b", "k", "https://minio/s3/b/k"},
		{"virtual", map[string]string{"AWS_ENDPOINT_URL": "https://minio", "S3_USER_VIRTUAL_BUCKET": "True"}, "b", "k", "https://b.minio/k"},
		{"virtual without a name", map[string]string{"AWS_ENDPOINT_URL": "https://10.0.0.1", "S3_USER_VIRTUAL_BUCKET": "1"}, "b", "k", "https://10.0.0.1/b/k"},
		{"the old global endpoint", map[string]string{"AWS_ENDPOINT_URL": "https://s3.amazonaws.com", "AWS_DEFAULT_REGION": "eu-west-1"}, "b", "k",
			"https://b.s3.eu-west-1.amazonaws.com/k"},
		{"signs in keys", nil, "b", "a b+c/ü=?#%", "https://b.s3.us-east-1.amazonaws.com/a%20b%2Bc/%C3%BC%3D%3F%23%25"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := readSettings(func(name string) string { return c.env[name] })
			if err != nil {
				t.Fatal(err)
			}
			if got := s.address(c.bucket, c.key).String(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestEntry: the storage secret counts more than variables, and what a service says counts most.
func TestEntry(t *testing.T) {
	bundle := filepath.Join(t.TempDir(), "ca.crt")
	env := map[string]string{
		"STORAGE_CONFIG": `{"type": "s3", "endpoint_url": "http://secret", "region": "r1", "access_key_id": "id", "secret_access_key": "key",
			"verify_ssl": "1", "anonymous": true, "ca_bundle": "` + bundle + `", "certificate": "PEM"}`,
		"STORAGE_OVERRIDE_CONFIG": `{"region": "r2"}`,
		"AWS_ENDPOINT_URL":        "http://variable", "AWS_SESSION_TOKEN": "token",
	}
	lookup, err := withEntry(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	s, err := readSettings(lookup)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{s.endpoint.String(), s.region, lookup("AWS_ACCESS_KEY_ID"), lookup("AWS_SECRET_ACCESS_KEY"), lookup("AWS_SESSION_TOKEN"),
		strconv.FormatBool(s.anonymous), strconv.FormatBool(s.trust.Anyone), strings.Join(s.trust.Files, " "), string(s.trust.PEM)}
	want := []string{"http://secret", "r2", "id", "key", "token", "true", "false", bundle, "PEM"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	env["STORAGE_CONFIG"] = `{"type": "hdfs", "endpoint_url": "http://secret"}`
	if lookup, _ = withEntry(func(name string) string { return env[name] }); lookup("AWS_ENDPOINT_URL") != "http://variable" { // see the result
		t.Error("an entry of another type was used")
	}
	for _, broken := range []string{`{"type": "hush`, `["hush"]`} {
		_, err = withEntry(func(string) string { return broken })
		if err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("error %v", err)
		}
	}
}

// bucket is a small S3: it lists two keys at a time and checks signatures by making them again.
type bucket struct {
	t       *testing.T
	objects map[string]string
	keys    Keys
	region  string
	refuse  string // a code for all listings
	asked   []string
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.asked = append(b.asked, r.URL.RequestURI())
	if problem := b.signature(r); problem != "" {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", problem)
		return
	}
	if b.region != "" && !strings.Contains(r.Header.Get("Authorization"), "/"+b.region+"/s3/") {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, "<Error><Code>AuthorizationHeaderMalformed</Code><Region>%s</Region></Error>", b.region)
		return
	}
	if r.URL.Path != "/b/" {
		http.NotFound(w, r)
		return
	}
	if b.refuse != "" {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", b.refuse)
		return
	}
	b.list(w, r.URL.Query())
}

func (b *bucket) signature(r *http.Request) string {
	got := r.Header.Get("Authorization")
	if b.keys.ID == "" {
		if got != "" {
			return "Signed"
		}
		return ""
	}
	at, err := time.Parse(timeFormat, r.Header.Get("X-Amz-Date"))
	if err != nil || !strings.Contains(got, "Credential="+b.keys.ID+"/") {
		return "InvalidAccessKeyId"
	}
	again := r.Clone(context.Background())
	again.Header.Del("Authorization")
	region := strings.Split(got, "/")[2]
	if Sign(again, b.keys, region, at); again.Header.Get("Authorization") != got || r.Header.Get("X-Amz-Security-Token") != b.keys.Token {
		return "SignatureDoesNotMatch"
	}
	return ""
}

func (b *bucket) list(w http.ResponseWriter, q url.Values) {
	type entry struct {
		Key, ETag string
		Size      int
	}
	var answer struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string
		EncodingType          string
		Contents              []entry
	}
	answer.EncodingType = "url"
	var matching []string
	for _, key := range sorted(b.objects) {
		if strings.HasPrefix(key, q.Get("prefix")) && key > q.Get("continuation-token") {
			matching = append(matching, key)
		}
	}
	most := 2
	if q.Get("max-keys") == "1" {
		most = 1
	}
	for i, key := range matching {
		if i == most {
			answer.IsTruncated, answer.NextContinuationToken = true, matching[i-1]
			break
		}
		answer.Contents = append(answer.Contents, entry{Key: url.QueryEscape(key), Size: len(b.objects[key]), ETag: `"tag"`})
	}
	if err := xml.NewEncoder(w).Encode(answer); err != nil {
		b.t.Error(err)
	}
}

func sorted(m map[string]string) []string {
	var out []string
	for key := range m {
		out = append(out, key)
	}
	for i := range out {
		for j := i; j > 0 && out[j] < out[j-1]; j-- {
			out[j], out[j-1] = out[j-1], out[j]
		}
	}
	return out
}

func TestList(t *testing.T) {
	objects := map[string]string{
		"model.onnx": "1", "dir/a": "1", "dir/b/c d+e": "22", "dir/b/": "", "dir/f": "333", "dir-2/x": "4", "dir": "", "alone": "", "hidden": "1",
	}
	id, key := "id", "hush"
	for _, c := range []struct {
		name, path string
		env        map[string]string
		bucket     bucket
		want       []string
		wrong      string
	}{
		{name: "an object", path: "model.onnx", want: []string{"model.onnx 1"}},
		{name: "a directory with a marker", path: "dir", want: []string{"a 1", "b/c d+e 2", "f 3"}},
		{name: "a directory", path: "dir/", want: []string{"a 1", "b/c d+e 2", "f 3"}},
		{name: "part of a name", path: "di"},
		{name: "an empty object", path: "alone", want: []string{"alone 0"}},
		{name: "the whole bucket", path: "", want: []string{"alone 0", "dir 0", "dir-2/x 1", "dir/a 1", "dir/b/c d+e 2", "dir/f 3", "hidden 1", "model.onnx 1"}},
		{name: "may read but not list", path: "hidden", bucket: bucket{refuse: "AccessDenied"}, want: []string{"hidden -1"}},
		{name: "a wrong key", path: "hidden", bucket: bucket{keys: Keys{ID: "id", Secret: "other"}}, wrong: "SignatureDoesNotMatch"},
		{name: "an unknown key", path: "hidden", bucket: bucket{keys: Keys{ID: "other", Secret: "other"}}, wrong: "InvalidAccessKeyId"},
		{name: "another region", path: "model.onnx", bucket: bucket{region: "eu-west-1"}, want: []string{"model.onnx 1"}},
		{name: "anonymous", path: "model.onnx", env: map[string]string{"awsAnonymousCredential": "true"}, bucket: bucket{keys: Keys{Token: "none"}}, want: []string{"model.onnx 1"}},
		{name: "a session", path: "model.onnx", env: map[string]string{"AWS_SESSION_TOKEN": "session"},
			bucket: bucket{keys: Keys{ID: id, Secret: key, Token: "session"}}, want: []string{"model.onnx 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.bucket
			b.t, b.objects = t, objects
			switch b.keys {
			case Keys{}:
				b.keys = Keys{ID: id, Secret: key}
			case Keys{Token: "none"}:
				b.keys = Keys{}
			}
			server := httptest.NewServer(&b)
			t.Cleanup(server.Close)
			env := map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": key}
			for name, value := range c.env {
				env[name] = value
			}
			got, err := list(t, "s3://b/"+c.path, env)
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) || strings.Contains(err.Error(), key) {
					t.Errorf("error %v, want %q", err, c.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func list(t *testing.T, address string, env map[string]string) ([]string, error) {
	t.Helper()
	s, err := Parse(address, func(name string) string { return env[name] })
	if err != nil {
		return nil, err
	}
	client, err := transfer.New(1, s.Trust())
	if err != nil {
		t.Fatal(err)
	}
	client.Attempts = 1
	items, err := s.List(t.Context(), client)
	var out []string
	for _, item := range items {
		out = append(out, item.Name+" "+strconv.FormatInt(item.Size, 10))
	}
	return out, err
}

// TestWhereKeysComeFrom: a role of the service account, an agent, the node.
func TestWhereKeysComeFrom(t *testing.T) {
	const document = `{"AccessKeyId": "id", "SecretAccessKey": "key", "Token": "token", "Expiration": "2999-01-01T00:00:00Z"}`
	services := http.NewServeMux()
	services.HandleFunc("POST /sts", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("Action") != "AssumeRoleWithWebIdentity" || r.FormValue("RoleArn") != "arn" || r.FormValue("WebIdentityToken") != "jwt" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<ErrorResponse><Error><Code>InvalidIdentityToken</Code></Error></ErrorResponse>")
			return
		}
		fmt.Fprint(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>id</AccessKeyId>`+
			`<SecretAccessKey>key</SecretAccessKey><SessionToken>token</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials>`+
			`</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`)
	})
	services.HandleFunc("GET /agent", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "jwt" {
			fmt.Fprint(w, document)
		}
	})
	services.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ticket") })
	services.HandleFunc("GET /latest/meta-data/iam/security-credentials/{role...}", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "ticket":
			w.WriteHeader(http.StatusUnauthorized)
		case r.PathValue("role") == "role":
			fmt.Fprint(w, document)
		default:
			fmt.Fprint(w, "role\n")
		}
	})
	server := httptest.NewServer(services)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("jwt\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, from, wrong string
		env               map[string]string
	}{
		{name: "role", from: "the role of the service account",
			env: map[string]string{"AWS_ROLE_ARN": "arn", "AWS_WEB_IDENTITY_TOKEN_FILE": file, "AWS_ENDPOINT_URL_STS": server.URL + "/sts"}},
		{name: "a role that is not granted", wrong: "cannot be assumed: access is denied (403)",
			env: map[string]string{"AWS_ROLE_ARN": "other", "AWS_WEB_IDENTITY_TOKEN_FILE": file, "AWS_ENDPOINT_URL_STS": server.URL + "/sts"}},
		{name: "no token", wrong: "AWS_WEB_IDENTITY_TOKEN_FILE", env: map[string]string{"AWS_ROLE_ARN": "arn", "AWS_WEB_IDENTITY_TOKEN_FILE": file + "x"}},
		{name: "agent", from: "the identity of the pod",
			env: map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.URL + "/agent", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file}},
		{name: "node", from: "the role of the node", env: map[string]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.URL}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, err := transfer.New(1, transfer.Trust{})
			if err != nil {
				t.Fatal(err)
			}
			v := &vault{env: func(name string) string { return c.env[name] }, region: defaultRegion, client: client.Aside(), now: time.Now}
			got, err := v.get(t.Context())
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("error %v, want %q", err, c.wrong)
				}
				return
			}
			want := Keys{"id", "key", "token"}
			if err != nil || got.Keys != want || got.from != c.from {
				t.Fatalf("%+v, %v", got, err)
			}
			sent := client.Requests()
			if _, err := v.get(t.Context()); err != nil || client.Requests() != sent {
				t.Error("keys that are still good were asked for again")
			}
			v.now = func() time.Time { return got.expires }
			if again, err := v.get(t.Context()); err != nil || again.Keys != want {
				t.Errorf("keys were not renewed: %v", err)
			}
		})
	}
}
