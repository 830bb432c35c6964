// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/modelplane/modelplane/internal/fetch/azure"
	"github.com/modelplane/modelplane/internal/fetch/gcs"
	"github.com/modelplane/modelplane/internal/fetch/hdfs"
	"github.com/modelplane/modelplane/internal/fetch/huggingface"
	"github.com/modelplane/modelplane/internal/fetch/modelregistry"
	"github.com/modelplane/modelplane/internal/fetch/oci"
	"github.com/modelplane/modelplane/internal/fetch/s3"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
	"github.com/modelplane/modelplane/internal/fetch/web"
)

var schemed = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*)://`) })

// scheme of an address, in small letters; empty for a path.
func scheme(address string) string {
	if m := schemed().FindStringSubmatch(address); m != nil {
		return strings.ToLower(m[1])
	}
	return ""
}

// claims is where claims are mounted in the container.
const claims = "/mnt/pvc"

// parse finds out what an address means. The result is a local, an *oci.Source, a *modelregistry.Source or a source.
func parse(address string, env func(string) string) (any, error) {
	kind := scheme(address)
	rest := address
	if kind != "" {
		rest = address[len(kind)+len("://"):]
	}
	switch kind {
	case "":
		return local(address), nil
	case "file":
		return local(filepath.Clean("/" + rest)), nil
	case "pvc":
		_, sub, _ := strings.Cut(rest, "/")
		return local(filepath.Join(claims, filepath.Clean("/"+sub))), nil
	case "s3":
		return s3.Parse(address, env)
	case "gs":
		return gcs.Parse(address, env)
	case "hf":
		return huggingface.Parse(address, env)
	case "hdfs", "webhdfs":
		return hdfs.Parse(address, env)
	case modelregistry.Scheme:
		return modelregistry.Parse(address, env)
	case "oci":
		return oci.Parse(address, env)
	case "abfs", "abfss":
		return azure.Parse(address, env)
	case "http", "https":
		if azure.Is(address) {
			return azure.Parse(address, env)
		}
		return web.Parse(address, env)
	}
	return nil, fmt.Errorf("models cannot be fetched from %s:// addresses; use one of %s", kind, strings.Join(schemes, ", "))
}

// schemes that can be fetched from.
var schemes = []string{"s3", "gs", "https", "http", "hf", "oci", "hdfs", "webhdfs", modelregistry.Scheme, "file", "pvc"}

// withBundle adds the certificates that the platform mounts for all.
func withBundle(t transfer.Trust, env func(string) string) transfer.Trust {
	if len(t.Files) > 0 || t.Anyone || env("CA_BUNDLE_CONFIGMAP_NAME") == "" || env("CA_BUNDLE_VOLUME_MOUNT_POINT") == "" {
		return t
	}
	t.Files = []string{filepath.Join(env("CA_BUNDLE_VOLUME_MOUNT_POINT"), "cabundle.crt")}
	return t
}
