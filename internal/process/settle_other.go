// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

// Settle does nothing where memory is not told of in this way.
func Settle() {}
