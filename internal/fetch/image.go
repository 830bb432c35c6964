// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"

	"github.com/modelplane/modelplane/internal/fetch/dest"
)

// image is a model in an OCI image, which is not read file by file.
type image interface {
	pull(ctx context.Context, r *run, into *dest.Dir) error
}
