// SPDX-License-Identifier: Apache-2.0

// Package image says which files the server's container image has. Who makes an image of the files is not its business.
package image

import "github.com/modelplane/modelplane/internal/rootfs"

// Collect copies the server and ONNX Runtime to the top of the tree, and everything they are linked with. It returns the
// paths within the image, sorted.
func Collect(server, library, tree string) ([]string, error) {
	return rootfs.Collect(tree, map[string]string{"/modelplane-onnx": server, "/libonnxruntime.so.1": library})
}
