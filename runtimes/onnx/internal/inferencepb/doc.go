// SPDX-License-Identifier: Apache-2.0

// Package inferencepb is the wire form of the open inference protocol over gRPC. `go generate` writes all
// but this file; it needs protoc (Debian: protobuf-compiler) and installs its two plugins.
package inferencepb

//go:generate go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
//go:generate go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.0
//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative inference.proto
