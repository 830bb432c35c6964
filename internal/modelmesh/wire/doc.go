// SPDX-License-Identifier: Apache-2.0

// Package wire is what the mesh says to others over gRPC: the API with which models are managed, and the interface that
// a model runtime beside it offers. Names and numbers are those that existing clients, controllers and runtimes know.
//
// `make generate` writes all but this file and the two .proto files.
package wire
