// SPDX-License-Identifier: Apache-2.0

package v1beta1

// Hub marks this version as the one that every conversion goes through.
func (*ModelRegistry) Hub() {}
