// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// sockets are those that somebody listens at, by the numbers that the kernel gives them. It gives none twice while a program runs.
type sockets map[string]bool

func (s sockets) shares(other sockets) bool {
	for inode := range s {
		if other[inode] {
			return true
		}
	}
	return false
}

// listening are the sockets of the model server. Containers of a pod have one network, so that the kernel can be asked: the server
// notices nothing of it.
func (p *Puller) listening() sockets {
	u, err := url.Parse(p.Server)
	if err != nil {
		return nil
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16)
	if err != nil {
		return nil
	}
	out := sockets{}
	for _, table := range []string{"tcp", "tcp6"} {
		if file, err := os.Open(filepath.Join(p.Sockets, table)); err == nil {
			out.read(file, port)
			_ = file.Close()
		}
	}
	return out
}

// The columns of the kernel's tables, and the state of a socket that is listened at. Those are at the head of a table.
const (
	columnAddress, columnState, columnInode = 1, 3, 9
	stateListen                             = "0A"
)

// read adds the sockets of a table that listen at a port.
func (s sockets) read(table io.Reader, port uint64) {
	at := fmt.Sprintf(":%04X", port)
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		columns := strings.Fields(lines.Text())
		if len(columns) <= columnInode || columns[columnState] == "st" {
			continue
		}
		if columns[columnState] != stateListen {
			return
		}
		if strings.HasSuffix(columns[columnAddress], at) {
			s[columns[columnInode]] = true
		}
	}
}
