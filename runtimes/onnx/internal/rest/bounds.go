// SPDX-License-Identifier: Apache-2.0

package rest

import (
	v2 "github.com/modelplane/modelplane/internal/openinference/body"
	"github.com/modelplane/modelplane/internal/openinference/tensor"
)

// Bodies of v1 are read with the same bounds as those of v2.
type (
	grower = v2.Grower
	part   = v2.Part
)

// answerSize is how much an answer takes at most, besides a little.
func answerSize(outputs []*tensor.Tensor) int64 {
	size := int64(4 << 10)
	for _, t := range outputs {
		size += t.TextSize() + int64(len(t.Data))
	}
	return size
}
