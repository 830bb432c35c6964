// SPDX-License-Identifier: Apache-2.0

package main

import (
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// made tells what was written.
type made struct {
	path   string
	digest v1.Hash
	size   int64
	images []madeImage
}

type madeImage struct {
	platform platform
	digest   v1.Hash
	size     int64
}

// write builds the image for every platform and packs an OCI image layout into one file.
// The tag of an image that is named by its content is only known then.
func write(o *options) (made, error) {
	work, err := os.MkdirTemp("", "modelplane-image-")
	if err != nil {
		return made{}, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	var images []v1.Image
	out := made{path: o.archive()}
	for i, p := range o.platforms {
		dir := filepath.Join(work, strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return made{}, err
		}
		image, err := imageFor(*o, p, dir)
		if err != nil {
			return made{}, err
		}
		one, err := describe(p, image)
		if err != nil {
			return made{}, err
		}
		images, out.images = append(images, image), append(out.images, one)
	}
	if o.byContent {
		if o.version, err = contentTag(images); err != nil {
			return made{}, err
		}
		out.path = o.archive()
	}
	if out.digest, err = writeLayout(*o, images, filepath.Join(work, "layout")); err != nil {
		return made{}, fmt.Errorf("write the image layout: %w", err)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return made{}, err
	}
	if out.size, err = pack(filepath.Join(work, "layout"), out.path); err != nil {
		return made{}, fmt.Errorf("pack %s: %w", out.path, err)
	}
	return out, nil
}

func describe(p platform, image v1.Image) (madeImage, error) {
	digest, err := image.Digest()
	if err != nil {
		return madeImage{}, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return madeImage{}, err
	}
	size := manifest.Config.Size
	for _, l := range manifest.Layers {
		size += l.Size
	}
	return madeImage{platform: p, digest: digest, size: size}, nil
}

// contentTag follows from what the images are.
func contentTag(images []v1.Image) (string, error) {
	sum := sha256.New()
	for _, image := range images {
		config, err := image.ConfigName() // the digest of the configuration, which names every layer
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, config)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:12], nil
}

// podNames are those by which pods of multi-model runtimes start what they need.
func podNames(program string) []file {
	return []file{
		{name: "opt/", mode: 0o755},
		{name: "opt/app/", mode: 0o755},
		{name: "opt/app/puller", mode: 0o777, link: "/" + program},
		{name: "opt/kserve/", mode: 0o755},
		{name: "opt/kserve/mmesh/", mode: 0o755},
		{name: "opt/kserve/mmesh/stop.sh", mode: 0o777, link: "/" + program},
	}
}

func imageFor(o options, p platform, dir string) (v1.Image, error) {
	entries, err := base(o.roots)
	if err != nil {
		return nil, err
	}
	if o.tree != "" {
		entries, err = addTree(entries, o.tree)
	} else {
		binary := filepath.Join(dir, o.program())
		if err = compile(o, p, binary); err == nil && o.keepAs != "" {
			err = keep(binary, o.keepAs)
		}
		entries = append(entries, file{name: o.program(), mode: 0o555, from: binary})
		if o.pkg == binaryPackage { // the name by which images of registries are started
			entries = append(entries, file{name: "model-registry", mode: 0o777, link: o.program()})
		}
		if o.pkg == podPackage {
			entries = append(entries, podNames(o.program())...)
		}
	}
	if err != nil {
		return nil, err
	}
	level := gzip.BestCompression
	if o.byContent {
		level = gzip.BestSpeed
	}
	layer, err := layerOf(entries, filepath.Join(dir, "layer.tar"), level)
	if err != nil {
		return nil, err
	}
	return assemble(o, p, layer)
}

// assemble puts a configuration around the layer.
func assemble(o options, p platform, layer v1.Layer) (v1.Image, error) {
	created := v1.Time{Time: o.date}
	if o.date.IsZero() {
		created.Time = time.Unix(0, 0).UTC()
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer: layer, History: v1.History{Created: created, CreatedBy: "hack/image"},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.os, p.arch, created
	config.Config = v1.Config{
		Entrypoint: []string{"/" + o.program()},
		User:       fmt.Sprintf("%[1]d:%[1]d", nonroot),
		WorkingDir: "/",
		Env:        []string{"PATH=" + o.path()},
		Labels:     o.labels(created.Time),
	}
	return mutate.ConfigFile(image, config)
}

// path is where commands without a slash are looked for. A tree may have them where Debian does.
func (o options) path() string {
	if o.tree != "" {
		return "/:/usr/local/bin:/usr/bin:/bin"
	}
	return "/"
}

func (o options) labels(created time.Time) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":       o.program(),
		prefix + "description": "One control plane for models on Kubernetes",
		prefix + "version":     o.version,
		prefix + "revision":    o.commit,
		prefix + "created":     created.Format(time.RFC3339),
		prefix + "source":      "https://github.com/modelplane/modelplane",
		prefix + "licenses":    "Apache-2.0",
	}
}

// writeLayout returns the digest that pods would pin: of the image, or of the index over several.
func writeLayout(o options, images []v1.Image, dir string) (v1.Hash, error) {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	// The first is the standard's, which means the tag; the second is how containerd learns the whole name.
	names := layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": o.tag(),
		"io.containerd.image.name":          o.reference(),
	})
	if len(images) == 1 {
		if err := path.AppendImage(images[0], names, layout.WithPlatform(o.platforms[0].oci())); err != nil {
			return v1.Hash{}, err
		}
		return images[0].Digest()
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, image := range images {
		p := o.platforms[i].oci()
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &p}})
	}
	if err := path.AppendIndex(index, names); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

func (p platform) oci() v1.Platform { return v1.Platform{OS: p.os, Architecture: p.arch} }

// pack writes a directory as a tar file, through a second name so that a reader never meets half of it.
func pack(dir, path string) (int64, error) {
	entries, err := addTree(nil, dir)
	if err != nil {
		return 0, err
	}
	part, err := os.Create(path + ".part")
	if err != nil {
		return 0, err
	}
	if err := errors.Join(writeTar(part, entries), part.Close()); err != nil {
		_ = os.Remove(part.Name())
		return 0, err
	}
	if err := os.Rename(part.Name(), path); err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
