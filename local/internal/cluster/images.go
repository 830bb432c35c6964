// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// image is an archive in memory and the name that it carries.
type image struct {
	name    string
	archive []byte
}

// pauseImage packs the program that lies beside the executable. The name follows from the content, so that
// a new program never hides behind a name that is loaded already.
func pauseImage(executable string) (image, error) {
	program, err := os.ReadFile(filepath.Join(filepath.Dir(executable), "pause"))
	if err != nil {
		return image{}, fmt.Errorf("the program that holds pods together is missing; build it beside modelplane-local: %w", err)
	}
	layer, err := packed(map[string][]byte{"pause": program})
	if err != nil {
		return image{}, err
	}
	config := map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/pause"}, "User": "65535:65535"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	}
	text, err := json.Marshal(config)
	if err != nil {
		return image{}, err
	}
	name := full(fmt.Sprintf("modelplane-pause:%.6x", sha256.Sum256(text)))
	index, err := json.Marshal([]map[string]any{{"Config": "config.json", "Layers": []string{"layer.tar"}, "RepoTags": []string{name}}})
	if err != nil {
		return image{}, err
	}
	archive, err := packed(map[string][]byte{"manifest.json": index, "config.json": text, "layer.tar": layer})
	return image{name: name, archive: archive}, err
}

// packed writes files into a tar archive whose bytes depend on nothing else.
func packed(files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		header := &tar.Header{Name: name, Mode: 0o555, Size: int64(len(files[name])), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// LoadImage makes the image in an archive (as `docker save`, or an OCI layout in a tar file) available to pods.
func (c *Cluster) LoadImage(ctx context.Context, path string) error {
	if !exists(c.Dir) {
		return c.absent()
	}
	st, err := loadState(c.Dir)
	if err != nil {
		return err
	}
	if st.Node == nil {
		return fmt.Errorf("the cluster in %s has no node that could run an image", c.Dir)
	}
	return c.load(ctx, path)
}

// load imports an archive unless the same bytes were imported before. What was imported is remembered beside
// the images themselves, and only trusted while they are still there.
func (c *Cluster) load(ctx context.Context, path string) error {
	start := time.Now()
	names, err := imageNames(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	digest, err := fileDigest(path)
	if err != nil {
		return err
	}
	loaded, err := c.ctr(ctx, "images", "list", "-q")
	if err != nil {
		return err
	}
	present := strings.Fields(loaded)
	record := c.nodeFile("images", strings.NewReplacer("/", "_", ":", "_").Replace(names[0])+".sha256")
	if old, err := os.ReadFile(record); err == nil && string(old) == digest && containsAll(present, names) {
		fmt.Fprintf(c.Out, "  %-24s %s is loaded already\n", "image", familiar(names[0]))
		return nil
	}
	if _, err := c.ctr(ctx, "images", "import", "--snapshotter", c.snapshotterInUse(), path); err != nil {
		return fmt.Errorf("importing %s: %w", path, err)
	}
	if err := c.nameFully(ctx, names); err != nil {
		return err
	}
	if err := writeFile(record, []byte(digest), 0o600); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "  %-24s %s loaded in %s\n", "image", familiar(names[0]), elapsed(start))
	return nil
}

func (c *Cluster) snapshotterInUse() string {
	if st, err := loadState(c.Dir); err == nil && st.Node != nil {
		return st.Node.Snapshotter
	}
	return "overlayfs"
}

// nameFully gives an image the long form of its name too, which is the one that the kubelet asks for.
func (c *Cluster) nameFully(ctx context.Context, names []string) error {
	loaded, err := c.ctr(ctx, "images", "list", "-q")
	if err != nil {
		return err
	}
	present := strings.Fields(loaded)
	for _, name := range names {
		if short := familiar(name); short != name && slices.Contains(present, short) {
			if _, err := c.ctr(ctx, "images", "tag", "--force", short, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func containsAll(all, wanted []string) bool {
	for _, w := range wanted {
		if !slices.Contains(all, w) {
			return false
		}
	}
	return true
}

// ctr talks to this cluster's containerd, in the namespace where the kubelet looks.
func (c *Cluster) ctr(ctx context.Context, args ...string) (string, error) {
	return tool(ctx, "", "ctr", append([]string{"--address", c.containerdSocket(), "--namespace", "k8s.io"}, args...)...)
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

const defaultHost, defaultFolder = "docker.io/", "library/"

// full is the long form of an image's name, as container runtimes complete it.
func full(name string) string {
	host, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		return defaultHost + defaultFolder + name
	case strings.ContainsAny(host, ".:") || host == "localhost":
		return host + "/" + rest
	default:
		return defaultHost + name
	}
}

// familiar is the short form, as people write it.
func familiar(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, defaultHost), defaultFolder)
}

// imageNames reads the names of an archive's images, in their long form.
func imageNames(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var names []string
	for archive := tar.NewReader(f); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("this is no image archive: %w", err)
		}
		found, err := namesIn(header.Name, io.LimitReader(archive, 1<<20))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", header.Name, err)
		}
		names = append(names, found...)
	}
	if len(names) == 0 {
		return nil, errors.New("no image in it has a name; save it with a name and a tag")
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func namesIn(file string, content io.Reader) ([]string, error) {
	var names []string
	switch file {
	case "index.json":
		var index struct {
			Manifests []struct{ Annotations map[string]string }
		}
		if err := json.NewDecoder(content).Decode(&index); err != nil {
			return nil, err
		}
		for _, m := range index.Manifests {
			if name := m.Annotations["io.containerd.image.name"]; name != "" {
				names = append(names, full(name))
			}
		}
	case "manifest.json":
		var all []struct{ RepoTags []string }
		if err := json.NewDecoder(content).Decode(&all); err != nil {
			return nil, err
		}
		for _, one := range all {
			for _, name := range one.RepoTags {
				names = append(names, full(name))
			}
		}
	}
	return names, nil
}
