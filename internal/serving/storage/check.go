// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/kube/address"
)

// Schemes that need no ClusterStorageContainer.
var schemes = []string{
	"gs", "s3", "pvc", "file", "https", "http", "hdfs", "webhdfs", "hf", schemeRegistry,
	"oci", schemeModelcar, schemeNative, schemeFetch,
}

const (
	schemePVC      = "pvc"
	schemeRegistry = "model-registry"
	schemeOCI      = "oci"
	schemeModelcar = schemeOCI + "+" + config.OCIModelcar
	schemeNative   = schemeOCI + "+" + config.OCINative
	schemeFetch    = schemeOCI + "+" + config.OCIFetch
)

// Names of the fields that a component states its models in.
var (
	fieldURI       = field.NewPath("storageUri")
	fieldSpec      = field.NewPath("storage")
	fieldURIs      = field.NewPath("storageUris")
	fieldContainer = field.NewPath("storageContainerName")
)

// azureBlob are addresses of blobs without a scheme of their own.
var azureBlob = regexp.MustCompile(`^https://(.+?)\.blob\.core\.windows\.net/(.+)`)

// schemed matches what looks like a URI rather than a path.
var schemed = regexp.MustCompile(`^([A-Za-z0-9+.-]+)://`)

// Check tells why a source cannot be used, before any pod is made. The error is
// a *field.Error whose path starts at the component.
func Check(s Source, containers []v1alpha1.ClusterStorageContainer) error {
	single := s.uri() != ""
	switch {
	case s.URI != "" && s.Spec != nil && s.Spec.Path != nil:
		return field.Invalid(fieldSpec.Child("path"), *s.Spec.Path, "storageUri is set as well; keep one of them")
	case single && len(s.URIs) > 0:
		return field.Invalid(fieldURIs, len(s.URIs), "storageUri or storage is set as well; move its model into storageUris")
	}
	if single {
		return checkURI(fieldURI, s.uri(), s.ContainerName, containers)
	}
	for i, m := range s.models() {
		at := fieldURIs.Index(i)
		if err := checkMountPath(at.Child("mountPath"), m.MountPath); err != nil {
			return err
		}
		if err := checkURI(at.Child("uri"), m.Uri, s.ContainerName, containers); err != nil {
			return err
		}
	}
	return checkPlaces(s.models())
}

// schemeOf is what stands before the first "://", or empty for a path.
func schemeOf(uri string) string {
	if m := schemed.FindStringSubmatch(uri); m != nil {
		return m[1]
	}
	return ""
}

func checkURI(at *field.Path, uri, name string, containers []v1alpha1.ClusterStorageContainer) error {
	if uri == "" {
		return field.Required(at, "say where the model is")
	}
	if strings.HasPrefix(uri, SchemePlaceholder) {
		return nil // the type comes from the storage secret
	}
	scheme := schemeOf(uri)
	if scheme == schemePVC {
		if _, _, err := parseClaim(at, uri); err != nil {
			return err
		}
	}
	container, err := Pick(uri, name, containers)
	switch {
	case err != nil && name != "":
		return field.Invalid(fieldContainer, name, err.Error())
	case container != nil, scheme == "", azureBlob.MatchString(uri), slices.Contains(schemes, scheme):
		return nil
	case err != nil:
		return field.Invalid(at, address.Shown(uri), err.Error())
	}
	return field.Invalid(at, address.Shown(uri), "nothing can download from scheme "+scheme+"; use one of "+strings.Join(schemes, ", ")+
		", or add a ClusterStorageContainer that supports it")
}

// checkMountPath refuses places that would hide the container's own files or
// mean another place than they say.
func checkMountPath(at *field.Path, place string) error {
	switch {
	case !path.IsAbs(place):
		return field.Invalid(at, place, "must start with a slash")
	case slices.Contains(strings.Split(place, "/"), ".."):
		return field.Invalid(at, place, "must not contain ..; write the path out")
	case path.Clean(place) == "/":
		return field.Invalid(at, place, "must be below the root; use for example "+ModelPath)
	}
	return nil
}

// checkPlaces refuses two volumes in one place, and downloads without a common
// directory that a volume could be mounted at. Downloads may share a place: they
// share a volume anyway.
func checkPlaces(models []v1beta1.StorageUri) error {
	taken := map[string]bool{} // by place; true where a download is
	var downloads []string
	for i, m := range models {
		place, download := path.Clean(m.MountPath), downloaded(m.Uri)
		if other, ok := taken[place]; ok && (!other || !download) {
			return field.Invalid(fieldURIs.Index(i).Child("mountPath"), m.MountPath, "another model is mounted there; choose another place")
		}
		taken[place] = download
		if download {
			downloads = append(downloads, place)
		}
	}
	if len(downloads) > 1 && commonParent(downloads) == "/" {
		return field.Invalid(fieldURIs, strings.Join(downloads, ", "),
			"models that are downloaded need a common directory below the root; put them for example below "+ModelPath)
	}
	return nil
}

// downloaded is true for what the init container brings in whichever mode.
func downloaded(uri string) bool {
	scheme := schemeOf(uri)
	return scheme != schemePVC && scheme != schemeOCI && !strings.HasPrefix(scheme, schemeOCI+"+")
}

// parseClaim takes pvc://claim/path apart.
func parseClaim(at *field.Path, uri string) (claim, sub string, err error) {
	claim, sub, _ = strings.Cut(strings.TrimPrefix(uri, schemePVC+"://"), "/")
	if problems := validation.IsDNS1123Subdomain(claim); len(problems) > 0 {
		return "", "", field.Invalid(at, address.Shown(uri), "must be pvc://CLAIM/PATH with the name of a PersistentVolumeClaim; "+problems[0])
	}
	if slices.Contains(strings.Split(sub, "/"), "..") {
		return "", "", field.Invalid(at, address.Shown(uri), "the path in the claim must not contain ..; write it out")
	}
	return claim, strings.TrimLeft(sub, "/"), nil
}

// commonParent is the deepest directory that holds all paths; of one path it is
// the path itself.
func commonParent(paths []string) string {
	common := strings.Split(path.Clean(paths[0]), "/")
	for _, p := range paths[1:] {
		parts := strings.Split(path.Clean(p), "/")
		n := 0
		for n < len(common) && n < len(parts) && common[n] == parts[n] {
			n++
		}
		common = common[:n]
	}
	if parent := strings.Join(common, "/"); parent != "" {
		return parent
	}
	return "/"
}
