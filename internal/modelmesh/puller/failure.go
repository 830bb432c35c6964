// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/fetch/dest"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// mistake is something that the model's registration must change.
type mistake struct{ sentence string }

func (m *mistake) Error() string { return m.sentence }

func mistakef(format string, args ...any) error { return &mistake{fmt.Sprintf(format, args...)} }

// failure is the status of a pull that failed. None of them means that the runtime has something in memory: what must be
// changed by a person is INVALID_ARGUMENT or FAILED_PRECONDITION, a full disk RESOURCE_EXHAUSTED, and UNAVAILABLE what
// may go by itself.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return gaveUp(ctx)
	}
	return status.Error(codeOf(err), sentence(err))
}

func codeOf(err error) codes.Code {
	var (
		wrong   *mistake
		room    *dest.NoRoom
		problem *transfer.Problem
	)
	switch {
	case errors.As(err, &wrong):
		return codes.InvalidArgument
	case errors.As(err, &room), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return codes.ResourceExhausted
	case errors.As(err, &problem) && passing(problem.Status):
		return codes.Unavailable
	}
	return codes.FailedPrecondition
}

// passing tells whether an answer, or its absence, may be different in a while.
func passing(answer int) bool {
	return answer == 0 || answer == http.StatusTooManyRequests || answer == http.StatusRequestTimeout || answer >= http.StatusInternalServerError
}

// sentence begins with a capital and ends with a full stop, as those of package fetch do.
func sentence(err error) string {
	text := strings.TrimRight(err.Error(), ".")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
