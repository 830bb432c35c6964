// SPDX-License-Identifier: Apache-2.0

// Package ortlib gets the shared library of ONNX Runtime: from where the user says, from the user's cache, or out of the
// npm package that carries it. What it fetches it compares with a checksum that is pinned here. It must not import
// anything outside the standard library, and nothing of the server.
package ortlib

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Name is the file's name, which is also what the loader looks for.
const Name = "libonnxruntime.so.1"

// Package and Version are where the library comes from.
const (
	Package = "onnxruntime-node"
	Version = "1.30.0"
)

// builds are the libraries in the package, by Go's name of the processor.
var builds = map[string]struct{ member, sha256 string }{
	"amd64": {"package/bin/napi-v6/linux/x64/libonnxruntime.so.1", "ffb75a925ba05e47b235bb66e3e3911714a80b328a9c9425539feb204aa32a23"},
	"arm64": {"package/bin/napi-v6/linux/arm64/libonnxruntime.so.1", "1f549d46250b005580b597f4164984aaf75b3bcb9f3aeb07c7f8a8fe60b23c76"},
}

// Find returns the library if it is there: $ORT_LIBRARY or the one in the cache.
func Find() (string, error) {
	if path := os.Getenv("ORT_LIBRARY"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("ORT_LIBRARY: %w", err)
		}
		return path, nil
	}
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, Name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("ONNX Runtime is not in the cache; `make onnx-library` fetches it, or set ORT_LIBRARY: %w", err)
	}
	return path, nil
}

func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("looking for a cache directory: %w; set ORT_LIBRARY", err)
	}
	return filepath.Join(cache, "modelplane", "onnxruntime", Version+"-"+runtime.GOARCH), nil
}

// Ensure returns the library and fetches it first when it is not there. It tells the waiting person what it does.
func Ensure(ctx context.Context, tell io.Writer) (string, error) {
	if path, err := Find(); err == nil || os.Getenv("ORT_LIBRARY") != "" {
		return path, err
	}
	build, ok := builds[runtime.GOARCH]
	if !ok || runtime.GOOS != "linux" {
		return "", fmt.Errorf("there is no ONNX Runtime for %s/%s in %s %s; set ORT_LIBRARY", runtime.GOOS, runtime.GOARCH, Package, Version)
	}
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	path := filepath.Join(dir, Name)
	if _, err := os.Stat(path); err == nil {
		return path, nil // another process was faster
	}
	began := time.Now()
	if err := fetch(ctx, tell, build.member, build.sha256, path); err != nil {
		return "", fmt.Errorf("fetching ONNX Runtime: %w\nWithout it, set ORT_LIBRARY to a libonnxruntime.so (1.24 or newer) of yours", err)
	}
	fmt.Fprintf(tell, "    %s in %s\n", path, time.Since(began).Round(time.Second))
	return path, nil
}

// lock asks again rather than blocking, so that an interrupt ends the wait.
func lock(ctx context.Context, path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-tick.C:
		}
	}
}

// install takes one member out of a packed package and puts it in place only when it is what was expected.
func install(packed io.Reader, member, sum, path string) (err error) {
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	files := tar.NewReader(unzipped)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the package has no %s", member)
		}
		if err != nil {
			return err
		}
		if header.Name == member {
			break
		}
	}
	temp, err := os.CreateTemp(filepath.Dir(path), Name+".")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name())
		}
	}()
	digest := sha256.New()
	_, copied := io.Copy(io.MultiWriter(temp, digest), files)
	if err := errors.Join(copied, temp.Chmod(0o644), temp.Sync(), temp.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != sum {
		return fmt.Errorf("%s has the checksum %s, %s is expected; it is not used", member, got, sum)
	}
	return os.Rename(temp.Name(), path)
}
