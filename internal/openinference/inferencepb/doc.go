// SPDX-License-Identifier: Apache-2.0

// Package inferencepb is the wire form of the open inference protocol over gRPC. `make generate` writes all
// but this file and the .proto file.
package inferencepb
