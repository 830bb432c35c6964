// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"testing"

	"github.com/modelplane/modelplane/internal/fetch/fetchtest"
	"github.com/modelplane/modelplane/internal/fetch/fetchtest/gateway"
)

// TestRealS3 fetches from a server that others wrote.
func TestRealS3(t *testing.T) {
	server := gateway.Start(t)
	large := fetchtest.Content(1<<20 + 13)
	server.Put(t, "models", nil)
	server.Put(t, "models/iris/model.onnx", []byte("weights"))
	server.Put(t, "models/iris/sub/a%20b%2Bc", []byte("x"))
	server.Put(t, "models/iris-2/other", []byte("other"))
	server.Put(t, "models/large.bin", large)
	server.Put(t, "models/packed/m.tar.gz", packed(t, "model.onnx", "weights"))
	right := map[string]string{
		"AWS_ACCESS_KEY_ID": gateway.AccessKey, "AWS_SECRET_ACCESS_KEY": gateway.SecretKey, "AWS_DEFAULT_REGION": gateway.Region,
		"AWS_ENDPOINT_URL": server.URL, "S3_ENDPOINT": server.URL,
	}
	wrong := map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": gateway.AccessKey, "AWS_SECRET_ACCESS_KEY": hush}
	entry := map[string]string{
		"STORAGE_CONFIG": `{"type": "s3", "access_key_id": "` + gateway.AccessKey + `", "secret_access_key": "` + gateway.SecretKey + `",` +
			`"endpoint_url": "` + server.URL + `", "region": "nowhere"}`,
		"STORAGE_OVERRIDE_CONFIG": `{"region": "` + gateway.Region + `"}`,
	}
	iris := map[string]string{"model.onnx": "weights", "sub/a b+c": "x"}
	for _, c := range []struct {
		name, source string
		env          map[string]string
		want         map[string]string
		wrong        string
	}{
		{name: "a directory", source: "s3://models/iris", env: right, want: iris},
		{name: "a directory with a slash", source: "s3://models/iris/", env: right, want: iris},
		{name: "an entry of the storage secret", source: "s3://models/iris", env: entry, want: iris},
		{name: "an object in parts", source: "s3://models/large.bin", env: right, want: map[string]string{"large.bin": string(large)}},
		{name: "an archive", source: "s3://models/packed/m.tar.gz", env: right, want: map[string]string{"model.onnx": "weights"}},
		{name: "wrong credentials", source: "s3://models/iris", env: wrong, wrong: "access is denied (403), SignatureDoesNotMatch"},
		{name: "no bucket", source: "s3://nothing/iris", env: right, wrong: "it does not exist (404), NoSuchBucket"},
		{name: "no object", source: "s3://models/nothing", env: right, wrong: "no files; check the path"},
		{name: "no credentials", source: "s3://models/iris", env: map[string]string{"AWS_ENDPOINT_URL": server.URL}, wrong: "no credentials"},
		{name: "nobody there", source: "s3://models/iris", env: map[string]string{"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, wrong: "connection refused; check the endpoint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := newScene(c.env).fetch(t, c.source)
			checkResult(t, got, err, c.want, c.wrong)
		})
	}
}
