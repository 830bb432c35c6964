// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// errUnreachable is a server that does not answer at all, such as one that is starting.
var errUnreachable = errors.New("the model server does not answer")

// call has the server load or unload a model. Only 200 is success.
func (p *Puller) call(ctx context.Context, name, what string) error {
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return errGone
	}
	at := strings.TrimSuffix(p.Server, "/") + "/v2/repository/models/" + url.PathEscape(name) + "/" + what
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := p.client.Do(req)
	var failed *url.Error
	switch {
	case ctx.Err() != nil:
		return errGone
	case errors.As(err, &failed) && failed.Timeout():
		return fmt.Errorf("the model server did not %s it within %s", what, callTime)
	case err != nil:
		return errUnreachable
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 512))
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	if err != nil {
		said = nil
	}
	return fmt.Errorf("the model server does not %s it and answers with status %d: %s", what, answer.StatusCode, strings.Join(strings.Fields(string(said)), " "))
}

// reachable tells whether somebody listens.
func (p *Puller) reachable(ctx context.Context) bool {
	u, err := url.Parse(p.Server)
	if err != nil {
		return false
	}
	connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}
