// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// checkStorage looks at where a component's files come from and go to.
func (s *service) checkStorage(p *part) {
	if uri, at := p.storageURI(); uri != "" && len(p.uris) > 0 {
		s.Refuse(field.Forbidden(p.path.Child("storageUris"), fmt.Sprintf("setting both storageUri and storageUris is not supported; "+
			"move %s into the list, or remove the list", at)))
	}
	s.checkURIs(p)
	for _, b := range p.blocks() {
		s.checkConfidential(b)
	}
}

// checkURIs wants every download to have a place of its own. Downloads share one
// volume, which is mounted where their paths meet; claims are mounted one by one.
func (s *service) checkURIs(p *part) {
	at := p.path.Child("storageUris")
	var downloads []string
	claims := map[string]int{}
	for i, u := range p.uris {
		mount := at.Index(i).Child("mountPath")
		if u.Uri == "" {
			s.Refuse(field.Required(at.Index(i).Child("uri"), "storage URI cannot be empty; say where to download from"))
		}
		if err := mountPath(mount, u.MountPath); err != nil {
			s.Refuse(err)
			continue
		}
		place := path.Clean(orDefaultMount(u.MountPath))
		if !strings.HasPrefix(u.Uri, "pvc://") {
			downloads = append(downloads, place)
			continue
		}
		if first, ok := claims[place]; ok {
			s.Refuse(explain(field.Duplicate(mount, place), "PVC storage paths must be unique, and "+at.Index(first).String()+" has this one; choose another"))
			continue
		}
		claims[place] = i
	}
	shared := commonParent(downloads)
	if len(downloads) > 1 && shared == "/" {
		s.Refuse(field.Invalid(at, strings.Join(downloads, ", "), "storage paths must have a common parent directory below the root, "+
			"for example /mnt/models/a and /mnt/models/b"))
	}
	for _, place := range downloads {
		for _, taken := range slices.Compact([]string{place, shared}) {
			if i, ok := claims[taken]; ok {
				s.Refuse(field.Invalid(at.Index(i).Child("mountPath"), taken, "downloads are mounted here too; give the claim a path of its own"))
				delete(claims, taken)
			}
		}
	}
}

const modelsDir = "/mnt/models"

func orDefaultMount(mount string) string {
	if mount == "" {
		return modelsDir
	}
	return mount
}

func mountPath(at *field.Path, mount string) *field.Error {
	switch {
	case mount == "":
		return nil
	case !strings.HasPrefix(mount, "/"):
		return field.Invalid(at, mount, "storage path must be absolute; start it with a slash, as in /mnt/models")
	case slices.Contains(strings.Split(mount, "/"), "..") || strings.Contains(mount, ".."):
		return field.Invalid(at, mount, "storage path cannot contain '..' for security reasons; write the path out")
	case path.Clean(mount) == "/":
		return field.Invalid(at, mount, "storage path cannot be the root of the file system; name a folder below it, as in /mnt/models")
	}
	return nil
}

// commonParent is the deepest folder that all paths are in.
func commonParent(paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	shared := strings.Split(paths[0], "/")
	for _, p := range paths[1:] {
		parts := strings.Split(p, "/")
		n := 0
		for n < min(len(shared), len(parts)) && shared[n] == parts[n] {
			n++
		}
		shared = shared[:n]
	}
	return "/" + strings.TrimPrefix(strings.Join(shared, "/"), "/")
}

// keyFormat is how a key broker names its keys.
var keyFormat = regexp.MustCompile(`^kbs:///[a-zA-Z0-9_-]+/[a-zA-Z0-9_-]+/[a-zA-Z0-9_.-]+$`)

// checkConfidential looks at models that are decrypted where they run.
func (s *service) checkConfidential(b block) {
	c := b.Confidential
	if c == nil || !c.Enabled {
		return
	}
	at := b.path.Child("confidential")
	if b.StorageURI == nil || *b.StorageURI == "" {
		s.Refuse(field.Required(b.path.Child("storageUri"), "confidential model serving requires storageUri to be set; say where the encrypted model is"))
	} else {
		s.warnConfidential(at, *b.StorageURI)
	}
	if id := c.ResourceID; id != nil && *id != "" && !keyFormat.MatchString(*id) {
		s.Refuse(field.Invalid(at.Child("resourceId"), *id, "must have the form kbs:///<repo>/<type>/<tag>"))
	}
}

func (s *service) warnConfidential(at *field.Path, uri string) {
	switch {
	case strings.HasPrefix(uri, "oci"):
		s.Warn(at, "has no effect on OCI images, which the container runtime decrypts; set runtimeClassName")
	case strings.HasPrefix(uri, "pvc://"):
		s.Warn(at, "has no effect on claims, which are mounted as they are; encrypt the volume instead")
	}
}

// checkLogger wants to know what is to be logged, and where to.
func (s *service) checkLogger(p *part) {
	l := p.scale.Logger
	if l == nil {
		return
	}
	at := p.path.Child("logger")
	known := []v1beta1.LoggerType{v1beta1.LogAll, v1beta1.LogRequest, v1beta1.LogResponse}
	switch {
	case l.Mode == "":
		s.Refuse(field.Required(at.Child("mode"), "invalid logger type: say what is to be logged, all, request or response"))
	case !slices.Contains(known, l.Mode):
		s.Refuse(field.NotSupported(at.Child("mode"), l.Mode, known))
	}
	if l.Storage == nil {
		return
	}
	at = at.Child("storage")
	if l.Storage.Path == nil || *l.Storage.Path == "" {
		s.Refuse(field.Required(at.Child("path"), "say where in the storage the log is to be written"))
	}
	if len(l.Storage.Parameters) == 0 {
		s.Refuse(field.Required(at.Child("parameters"), "describe the storage, for example type: s3 and bucket: logs"))
	}
	if l.Storage.StorageKey == nil || *l.Storage.StorageKey == "" {
		s.Refuse(field.Required(at.Child("key"), "name the entry of the storage secret with the credentials"))
	}
}
