// SPDX-License-Identifier: Apache-2.0

// Package e2e uses Modelplane as a person does: it brings a cluster up with the programs of `make up`, talks to it with
// kubectl and HTTP, and looks only at what a person could see. It must not import the code under test.
//
// Its tests are built with the tag e2e only: they need root, and a machine to themselves.
package e2e
