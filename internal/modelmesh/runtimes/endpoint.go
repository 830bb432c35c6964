// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// defaultManagement is the port at which a runtime is told about models where it names none.
const defaultManagement = 8085

// endpoint is where a runtime listens: a port, or a socket in the file system. The zero value is nowhere.
type endpoint struct {
	port   int32
	socket string
	text   string // as it was written
}

func (e endpoint) given() bool { return e.port != 0 || e.socket != "" }

// String is the endpoint as programs understand it.
func (e endpoint) String() string {
	if e.text != "" || !e.given() {
		return e.text
	}
	return fmt.Sprintf("port:%d", e.port)
}

func parseEndpoint(text *string) (endpoint, error) {
	if text == nil || *text == "" {
		return endpoint{}, nil
	}
	scheme, rest, _ := strings.Cut(*text, ":")
	switch scheme {
	case "port":
		n, err := strconv.ParseUint(rest, 10, 16)
		if err != nil || n == 0 {
			return endpoint{}, fmt.Errorf("%q is no port; write for example \"port:8085\"", rest)
		}
		return endpoint{port: int32(n), text: *text}, nil
	case "unix":
		socket := strings.TrimPrefix(rest, "//")
		if !path.IsAbs(socket) || path.Clean(socket) != socket || path.Dir(socket) == "/" {
			return endpoint{}, fmt.Errorf("%q is no path of a socket; write an absolute one in a directory of its own, such as \"unix:/tmp/mmesh/grpc.sock\"", socket)
		}
		return endpoint{socket: socket, text: *text}, nil
	}
	return endpoint{}, fmt.Errorf("it has to begin with \"port:\" or \"unix:\"")
}

// sockets is the directory that the containers share for their sockets, empty if there are none.
func (p *planner) sockets() string {
	for _, e := range []endpoint{p.data, p.management} {
		if e.socket != "" {
			return path.Dir(e.socket)
		}
	}
	return ""
}
