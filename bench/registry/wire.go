// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// wire stands between a server and its database and counts the statements that the server has executed, by what passes:
// whatever the server is written in, and however it asks.
type wire struct {
	address    string
	statements atomic.Int64
}

// protocol reads what a client sends and calls back for each statement that is to be executed. It passes everything on.
type protocol func(from io.Reader, to io.Writer, statement func()) error

// listen opens a way to a database that counts.
func listen(t testing.TB, database string, p protocol) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	w := &wire{address: l.Addr().String()}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go w.connect(client, database, p)
		}
	}()
	return w
}

func (w *wire) connect(client net.Conn, database string, p protocol) {
	defer client.Close()
	server, err := net.Dial("tcp", database)
	if err != nil {
		return // the client sees a connection that ends
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server) // it ends with either side
		_ = client.Close()
	}()
	_ = p(bufio.NewReader(client), server, func() { w.statements.Add(1) }) // as above
}

// postgresProtocol counts messages that execute: a simple query, and an execution of a prepared one. A look whether the
// connection is alive executes nothing.
func postgresProtocol(from io.Reader, to io.Writer, statement func()) error {
	if err := message(from, to, 0, func([]byte) {}); err != nil { // who comes has no type before it
		return err
	}
	for {
		err := message(from, to, 1, func(m []byte) {
			text := strings.TrimRight(string(m[5:]), "\x00")
			if m[0] == 'E' || m[0] == 'Q' && text != "" && !strings.HasPrefix(text, "--") {
				statement()
			}
		})
		if err != nil {
			return err
		}
	}
}

// message passes one on: a type of some bytes, a length that counts itself, and the rest.
func message(from io.Reader, to io.Writer, typ int, look func([]byte)) error {
	head := make([]byte, typ+4)
	if _, err := io.ReadFull(from, head); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[typ:])
	if size < 4 || size > 64<<20 {
		return errors.New("this is not what PostgreSQL speaks")
	}
	return pass(from, to, head, int(size)-4, look)
}

// mysqlProtocol counts commands that execute. A command is a packet with the number 0; others belong to the one before.
func mysqlProtocol(from io.Reader, to io.Writer, statement func()) error {
	const query, execute = 0x03, 0x17
	for {
		head := make([]byte, 4)
		if _, err := io.ReadFull(from, head); err != nil {
			return err
		}
		err := pass(from, to, head, int(head[0])|int(head[1])<<8|int(head[2])<<16, func(m []byte) {
			if m[3] == 0 && len(m) > 4 && (m[4] == query || m[4] == execute) {
				statement()
			}
		})
		if err != nil {
			return err
		}
	}
}

// pass looks at a message before it goes on, so that what was answered has been counted.
func pass(from io.Reader, to io.Writer, head []byte, size int, look func([]byte)) error {
	whole := slices.Concat(head, make([]byte, size))
	if _, err := io.ReadFull(from, whole[len(head):]); err != nil {
		return err
	}
	look(whole)
	_, err := to.Write(whole)
	return err
}
