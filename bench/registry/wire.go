// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
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
	if _, err := message(from, to, 0); err != nil { // who comes has no type before it
		return err
	}
	for {
		body, err := message(from, to, 1)
		if err != nil {
			return err
		}
		switch body[0] {
		case 'Q':
			if text := strings.TrimRight(string(body[5:]), "\x00"); text != "" && !strings.HasPrefix(text, "--") {
				statement()
			}
		case 'E':
			statement()
		}
	}
}

// message passes one on: a type of some bytes, a length that counts itself, and the rest.
func message(from io.Reader, to io.Writer, typ int) ([]byte, error) {
	head := make([]byte, typ+4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[typ:])
	if size < 4 || size > 64<<20 {
		return nil, errors.New("this is not what PostgreSQL speaks")
	}
	return pass(from, to, head, int(size)-4)
}

// mysqlProtocol counts commands that execute. A command is a packet with the number 0; others belong to the one before.
func mysqlProtocol(from io.Reader, to io.Writer, statement func()) error {
	const query, execute = 0x03, 0x17
	for {
		head := make([]byte, 4)
		if _, err := io.ReadFull(from, head); err != nil {
			return err
		}
		packet, err := pass(from, to, head, int(head[0])|int(head[1])<<8|int(head[2])<<16)
		if err != nil {
			return err
		}
		if head[3] == 0 && len(packet) > 4 && (packet[4] == query || packet[4] == execute) {
			statement()
		}
	}
}

func pass(from io.Reader, to io.Writer, head []byte, size int) ([]byte, error) {
	whole := append(head, make([]byte, size)...)
	if _, err := io.ReadFull(from, whole[len(head):]); err != nil {
		return nil, err
	}
	_, err := to.Write(whole)
	return whole, err
}
