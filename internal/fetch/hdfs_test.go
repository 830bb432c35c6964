// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/fetch/fetchtest"
)

// TestHDFS reads from a played name node that sends to data nodes, which send whole files only.
func TestHDFS(t *testing.T) {
	large := string(fetchtest.Content(300 << 10))
	content := map[string]string{"/user/me/iris/model.onnx": large, "/user/me/iris/a/b c": "x"}
	data := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("X-Key"), hush) {
			t.Error("a data node got the headers of the name node")
		}
		w.Write([]byte(content[r.URL.Path])) //nolint:errcheck // the client may go
	}))
	t.Cleanup(data.Close)
	dataURL := strings.Replace(data.URL, "127.0.0.1", "localhost", 1)
	type file struct {
		PathSuffix string `json:"pathSuffix"`
		Type       string `json:"type"`
		Length     int    `json:"length"`
	}
	name := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/webhdfs/v1")
		_, isFile := content[path]
		switch op := r.FormValue("op"); {
		case r.Header.Get("X-Key") != hush || r.FormValue("doas") != "me":
			w.WriteHeader(http.StatusUnauthorized)
		case op == "OPEN" && isFile:
			http.Redirect(w, r, dataURL+strings.ReplaceAll(path, " ", "%20"), http.StatusTemporaryRedirect)
		case op == "GETFILESTATUS" && isFile:
			answer(w, map[string]any{"FileStatus": file{"", "FILE", len(content[path])}})
		case op == "GETFILESTATUS" && path == "/user/me/iris":
			answer(w, map[string]any{"FileStatus": file{"", "DIRECTORY", 0}})
		case op == "LISTSTATUS" && path == "/user/me/iris":
			answer(w, map[string]any{"FileStatuses": map[string]any{"FileStatus": []file{{"a", "DIRECTORY", 0}, {"model.onnx", "FILE", len(large)}}}})
		case op == "LISTSTATUS" && path == "/user/me/iris/a":
			answer(w, map[string]any{"FileStatuses": map[string]any{"FileStatus": []file{{"b c", "FILE", 1}}}})
		default:
			w.WriteHeader(http.StatusNotFound)
			answer(w, map[string]any{"RemoteException": map[string]string{"exception": "FileNotFoundException"}})
		}
	}))
	t.Cleanup(name.Close)
	standby := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		answer(w, map[string]any{"RemoteException": map[string]string{"exception": "StandbyException"}})
	}))
	t.Cleanup(standby.Close)

	headers := `{"X-Key": "` + hush + `"}`
	dir := t.TempDir()
	write(t, dir, map[string]string{"HDFS_NAMENODE": standby.URL + ";" + name.URL, "USER_PROXY": "me\n", "HEADERS": headers})
	kerberos := t.TempDir()
	write(t, kerberos, map[string]string{"HDFS_NAMENODE": name.URL, "KERBEROS_PRINCIPAL": "me@REALM"})
	entry, err := json.Marshal(map[string]string{"type": "webhdfs", "HDFS_NAMENODE": name.URL, "USER_PROXY": "you", "HEADERS": headers, "HDFS_ROOTPATH": "/user"})
	if err != nil {
		t.Fatal(err)
	}
	iris := map[string]string{"model.onnx": large, "a/b c": "x"}
	runCases(t, map[string]string{"HDFS_SECRET_DIR": dir}, []cloudCase{
		{name: "a directory", source: "hdfs://user/me/iris", want: iris},
		{name: "a file", source: "webhdfs://user/me/iris/model.onnx", want: map[string]string{"model.onnx": large}},
		{name: "the storage secret", source: "webhdfs://me/iris", want: iris,
			env: map[string]string{"STORAGE_CONFIG": string(entry), "STORAGE_OVERRIDE_CONFIG": `{"USER_PROXY": "me"}`}},
		{name: "nothing", source: "hdfs://user/me/nothing", wrong: "it does not exist (404), FileNotFoundException; check the path /user/me/nothing"},
		{name: "not allowed", source: "hdfs://user/me/iris", env: map[string]string{"STORAGE_CONFIG": string(entry)}, wrong: "(401); check the secret for HDFS"},
		{name: "Kerberos", source: "hdfs://user/me/iris", env: map[string]string{"HDFS_SECRET_DIR": kerberos}, wrong: "Kerberos, which is not supported"},
		{name: "no secret", source: "hdfs://user/me/iris", env: map[string]string{"HDFS_SECRET_DIR": filepath.Join(os.TempDir(), "none")}, wrong: "HDFS_NAMENODE is missing"},
	})
}
