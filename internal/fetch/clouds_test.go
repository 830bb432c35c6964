// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"crypto"
	"crypto/md5" // what servers state
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" // what git states
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/fetchtest"
)

// cloudCase is one fetch from a played cloud.
type cloudCase struct {
	name, source string
	env          map[string]string
	want         map[string]string
	wrong        string
}

func runCases(t *testing.T, common map[string]string, cases []cloudCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			env := map[string]string{}
			for _, from := range []map[string]string{common, c.env} {
				for name, value := range from {
					env[name] = value
				}
			}
			got, err := newScene(env).fetch(t, c.source)
			checkResult(t, got, err, c.want, c.wrong)
		})
	}
}

func answer(w http.ResponseWriter, value any) {
	_ = json.NewEncoder(w).Encode(value) // the client may go
}

// served answers with content as servers of files do.
func served(w http.ResponseWriter, r *http.Request, content string) {
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
}

func below(objects map[string]string, prefix string) []string {
	var out []string
	for name := range objects {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// playGoogle plays the storage, which lists one object at a time, and the token endpoint, which checks who asks.
func playGoogle(t *testing.T, key *rsa.PrivateKey, objects map[string]string) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(r.FormValue("assertion"), ".")
		if len(parts) != 3 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
		signature, err := base64.RawURLEncoding.DecodeString(parts[2])
		if err != nil || rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, digest[:], signature) != nil {
			w.WriteHeader(http.StatusUnauthorized)
			answer(w, map[string]string{"error": "invalid_grant"})
			return
		}
		answer(w, map[string]any{"access_token": "google-" + hush, "expires_in": 3600})
	})
	mux.HandleFunc("GET /computeMetadata/v1/instance/service-accounts/default/token", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") == "Google" {
			answer(w, map[string]any{"access_token": "google-" + hush, "expires_in": 3600})
		}
	})
	entry := func(name string) map[string]string {
		sum := md5.Sum([]byte(objects[name])) // as above
		return map[string]string{"name": name, "size": fmt.Sprint(len(objects[name])), "md5Hash": base64.StdEncoding.EncodeToString(sum[:]), "generation": "7"}
	}
	mux.HandleFunc("GET /storage/v1/b/{bucket}/o", func(w http.ResponseWriter, r *http.Request) {
		if !allowed(w, r) {
			return
		}
		names := below(objects, r.URL.Query().Get("prefix"))
		i := slices.Index(names, r.URL.Query().Get("pageToken")) + 1
		page := map[string]any{}
		if i < len(names) {
			page["items"] = []any{entry(names[i])}
			if i+1 < len(names) {
				page["nextPageToken"] = names[i]
			}
		}
		answer(w, page)
	})
	mux.HandleFunc("GET /storage/v1/b/{bucket}/o/{object}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("object")
		content, ok := objects[name]
		switch {
		case !allowed(w, r):
		case !ok:
			http.NotFound(w, r)
		case r.URL.Query().Get("alt") == "media":
			served(w, r, content)
		default:
			answer(w, entry(name))
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// allowed lets everybody into the bucket "public" and others only with the token.
func allowed(w http.ResponseWriter, r *http.Request) bool {
	if r.PathValue("bucket") == "public" || r.Header.Get("Authorization") == "Bearer google-"+hush {
		return true
	}
	w.WriteHeader(http.StatusForbidden)
	return false
}

func TestGoogle(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	large := string(fetchtest.Content(300 << 10))
	server := playGoogle(t, key, map[string]string{
		"iris/model.onnx": "weights", "iris/a/b c+d": large, "iris/a/": "", "iris-2/x": "other", "one.bin": "one",
		"p/m.tar.gz": string(packed(t, "model.onnx", "weights")),
	})
	file := credentialsFile(t, key, server.URL)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	iris := map[string]string{"model.onnx": "weights", "a/b c+d": large}
	account := map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": file}
	strange := filepath.Join(t.TempDir(), "strange.json")
	if err := os.WriteFile(strange, []byte(`{"type": "external_account"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	runCases(t, map[string]string{"STORAGE_EMULATOR_HOST": server.URL, "GCE_METADATA_HOST": "127.0.0.1:1"}, []cloudCase{
		{name: "a directory of everybody", source: "gs://public/iris", want: iris},
		{name: "with an account", source: "gs://private/iris/", env: account, want: iris},
		{name: "as the machine", source: "gs://private/iris", env: map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(server.URL, "http://")}, want: iris},
		{name: "one object", source: "gs://public/one.bin", want: map[string]string{"one.bin": "one"}},
		{name: "an archive", source: "gs://public/p/m.tar.gz", want: map[string]string{"model.onnx": "weights"}},
		{name: "nothing", source: "gs://public/nothing", wrong: "it does not exist (404); check bucket public"},
		{name: "no access", source: "gs://private/iris", wrong: "(403); it was asked with no credentials"},
		{name: "an account that nobody knows", source: "gs://private/iris",
			env:   map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": credentialsFile(t, other, server.URL)},
			wrong: "no token of Google for the service account robot@test: access is denied (401), invalid_grant"},
		{name: "no file", source: "gs://private/iris", env: map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": "/nothing"}, wrong: "/nothing cannot be read"},
		{name: "another kind of account", source: "gs://private/iris", env: map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": strange}, wrong: "external_account"},
	})
}

func credentialsFile(t *testing.T, key *rsa.PrivateKey, server string) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "robot@test", "token_uri": server + "/token", "private_key_id": "1",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// playAzure plays blobs, which are listed one at a time, a token endpoint and managed identities.
func playAzure(t *testing.T, blobs map[string]string) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tenant/oauth2/v2.0/token", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("client_secret") != hush && r.FormValue("client_assertion") != "jwt" || r.FormValue("scope") != "https://storage.azure.com/.default" {
			w.WriteHeader(http.StatusUnauthorized)
			answer(w, map[string]string{"error": "invalid_client"})
			return
		}
		answer(w, map[string]any{"access_token": "azure-" + hush, "expires_in": "3599"})
	})
	mux.HandleFunc("GET /metadata/identity/oauth2/token", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata") == "true" && r.FormValue("client_id") == "managed" {
			answer(w, map[string]any{"access_token": "azure-" + hush, "expires_in": "3599"})
		}
	})
	mux.HandleFunc("GET /{container}", func(w http.ResponseWriter, r *http.Request) {
		if !azureAllowed(w, r) {
			return
		}
		names := below(blobs, r.FormValue("prefix"))
		i := slices.Index(names, r.FormValue("marker")) + 1
		fmt.Fprint(w, "<?xml version=\"1.0\"?><EnumerationResults><Blobs>")
		next := ""
		if i < len(names) {
			fmt.Fprintf(w, "<Blob><Name>%s</Name><Properties><Content-Length>%d</Content-Length></Properties></Blob>", names[i], len(blobs[names[i]]))
			if i+1 < len(names) {
				next = names[i]
			}
		}
		fmt.Fprintf(w, "</Blobs><NextMarker>%s</NextMarker></EnumerationResults>", next)
	})
	mux.HandleFunc("GET /{container}/{name...}", func(w http.ResponseWriter, r *http.Request) {
		if azureAllowed(w, r) {
			served(w, r, blobs[r.PathValue("name")])
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func azureAllowed(w http.ResponseWriter, r *http.Request) bool {
	ok := r.Header.Get("X-Ms-Version") != ""
	switch r.PathValue("container") {
	case "public":
	case "signed":
		ok = ok && r.FormValue("sig") == hush
	default:
		ok = ok && r.Header.Get("Authorization") == "Bearer azure-"+hush
	}
	if !ok {
		w.Header().Set("X-Ms-Error-Code", "AuthorizationFailure")
		w.WriteHeader(http.StatusForbidden)
	}
	return ok
}

func TestAzure(t *testing.T) {
	large := string(fetchtest.Content(300 << 10))
	server := playAzure(t, map[string]string{
		"iris": "", "iris/model.onnx": "weights", "iris/a b/c": large, "iris-2/x": "other", "one.bin": "one",
	})
	file := filepath.Join(t.TempDir(), "jwt")
	if err := os.WriteFile(file, []byte("jwt"), 0o600); err != nil {
		t.Fatal(err)
	}
	const at = "https://account.blob.core.windows.net/"
	iris := map[string]string{"model.onnx": "weights", "a b/c": large}
	client := map[string]string{"AZURE_CLIENT_ID": "client", "AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_SECRET": hush}
	runCases(t, map[string]string{
		"AZURE_SERVICE_URL": server.URL, "AZURE_AUTHORITY_HOST": server.URL, "AZURE_POD_IDENTITY_AUTHORITY_HOST": server.URL,
	}, []cloudCase{
		{name: "of everybody", source: at + "public/iris", want: iris},
		{name: "one blob", source: at + "public/one.bin", want: map[string]string{"one.bin": "one"}},
		{name: "another form", source: "abfs://public@account.dfs.core.windows.net/iris", want: iris},
		{name: "a signature in the address", source: at + "signed/iris?sp=r&sig=" + url.QueryEscape(hush), want: iris},
		{name: "a client with a secret", source: at + "private/iris", env: client, want: iris},
		{name: "older variables", source: at + "private/iris", want: iris,
			env: map[string]string{"AZ_CLIENT_ID": "client", "AZ_TENANT_ID": "tenant", "AZ_CLIENT_SECRET": hush}},
		{name: "the token of the service account", source: at + "private/iris", want: iris,
			env: map[string]string{"AZURE_CLIENT_ID": "client", "AZURE_TENANT_ID": "tenant", "AZURE_FEDERATED_TOKEN_FILE": file}},
		{name: "a managed identity", source: at + "private/iris", env: map[string]string{"AZURE_CLIENT_ID": "managed"}, want: iris},
		{name: "a token", source: at + "private/iris", env: map[string]string{"AZURE_ACCESS_TOKEN": "azure-" + hush}, want: iris},
		{name: "a token that has expired", source: at + "private/iris", wrong: "has expired",
			env: map[string]string{"AZURE_ACCESS_TOKEN": "azure-" + hush, "AZURE_ACCESS_EXPIRES_ON_SECONDS": "1"}},
		{name: "a wrong secret", source: at + "private/iris", wrong: "no token of Azure for client client: access is denied (401), invalid_client",
			env: map[string]string{"AZURE_CLIENT_ID": "client", "AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_SECRET": "wrong"}},
		{name: "no access", source: at + "private/iris", wrong: "(403), AuthorizationFailure; it was asked with no credentials"},
		{name: "no container", source: at, wrong: "names no container"},
		{name: "nothing", source: at + "public/nothing", wrong: "no files"},
	})
}

func TestHuggingFace(t *testing.T) {
	weights := string(fetchtest.Content(300 << 10))
	weightsSum := sha256.Sum256([]byte(weights))
	config := `{"a": 1}`
	configSum := sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(config), config))) // as above
	spoilt := false
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/models/org/{model}/revision/{revision}", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.PathValue("model") == "gated" && r.Header.Get("Authorization") != "Bearer "+hush:
			w.Header().Set("X-Error-Code", "GatedRepo")
			w.WriteHeader(http.StatusUnauthorized)
		case !slices.Contains([]string{"main", "v1"}, r.PathValue("revision")):
			w.Header().Set("X-Error-Code", "RevisionNotFound")
			w.WriteHeader(http.StatusNotFound)
		default:
			answer(w, map[string]string{"sha": "c0ffee"})
		}
	})
	mux.HandleFunc("GET /api/models/org/{model}/tree/c0ffee", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("cursor") == "" {
			w.Header().Set("Link", `</api/models/org/`+r.PathValue("model")+`/tree/c0ffee?recursive=true&cursor=2>; rel="next"`)
			answer(w, []any{map[string]any{"type": "directory", "path": "onnx"},
				map[string]any{"type": "file", "path": "config.json", "size": len(config), "oid": hex.EncodeToString(configSum[:])}})
			return
		}
		answer(w, []any{map[string]any{"type": "file", "path": "onnx/model.onnx", "size": 130, "oid": "1",
			"lfs": map[string]any{"oid": hex.EncodeToString(weightsSum[:]), "size": len(weights)}}})
	})
	mux.HandleFunc("GET /org/{model}/resolve/c0ffee/config.json", func(w http.ResponseWriter, r *http.Request) {
		if spoilt {
			served(w, r, strings.ToUpper(config))
			return
		}
		served(w, r, config)
	})
	mux.HandleFunc("GET /org/{model}/resolve/c0ffee/onnx/model.onnx", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/cdn?signature="+hush, http.StatusFound)
	})
	mux.HandleFunc("GET /cdn", func(w http.ResponseWriter, r *http.Request) { served(w, r, weights) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	whole := map[string]string{"config.json": config, "onnx/model.onnx": weights}
	hub := map[string]string{"HF_ENDPOINT": server.URL}
	runCases(t, hub, []cloudCase{
		{name: "a model", source: "hf://org/model", want: whole},
		{name: "a revision", source: "hf://org/model:v1", want: whole},
		{name: "a gated model", source: "hf://org/gated", env: map[string]string{"HF_TOKEN": hush}, want: whole},
		{name: "a gated model without a token", source: "hf://org/gated", wrong: "(401), GatedRepo; check the name and the revision; a gated or private model needs HF_TOKEN"},
		{name: "no revision", source: "hf://org/model:v9", wrong: "(404), RevisionNotFound"},
		{name: "no model", source: "hf://org", wrong: "write hf://ORGANISATION/MODEL"},
		{name: "a path", source: "hf://org/model/file", wrong: "write hf://ORGANISATION/MODEL"},
	})
	spoilt = true
	runCases(t, hub, []cloudCase{{name: "a spoilt file", source: "hf://org/model", wrong: "config.json: what arrived does not have the git SHA-1"}})
}
