// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/fetch/dest"
)

// mistake is something that the model's registration must change.
type mistake struct{ sentence string }

func (m *mistake) Error() string { return m.sentence }

func mistakef(format string, args ...any) error { return &mistake{fmt.Sprintf(format, args...)} }

// failure is the status of a pull that failed. None of them means that the runtime has something in memory, which
// INVALID_ARGUMENT (the model is described wrongly) and FAILED_PRECONDITION (the storage does not have it, or does not
// give it) say to the mesh. RESOURCE_EXHAUSTED is a full disk. It is never UNAVAILABLE, whatever the storage says: that
// would be a runtime that has gone.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return gaveUp(ctx)
	}
	return status.Error(codeOf(err), sentence(err))
}

func codeOf(err error) codes.Code {
	var (
		wrong *mistake
		room  *dest.NoRoom
	)
	switch {
	case errors.As(err, &wrong):
		return codes.InvalidArgument
	case errors.As(err, &room), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return codes.ResourceExhausted
	}
	return codes.FailedPrecondition
}

// unconnected is how gRPC begins when it has no connection.
const unconnected = "connection error: desc = "

// ofRuntime is the runtime's own status, in words where it could not be asked.
func ofRuntime(err error) error {
	s := status.Convert(err)
	if cause, ok := strings.CutPrefix(s.Message(), unconnected); ok && s.Code() == codes.Unavailable {
		return status.Error(codes.Unavailable, "The model runtime cannot be reached: "+strings.Trim(cause, `"`)+".")
	}
	return err
}

// sentence begins with a capital and ends with a full stop, as those of package fetch do.
func sentence(err error) string {
	text := strings.TrimRight(err.Error(), ".")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
