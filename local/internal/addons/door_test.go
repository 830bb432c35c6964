// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// listen is a port of this machine.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// repeat is a server that answers only when it has heard everything, in capitals and with its name.
func repeat(t *testing.T, name string) string {
	t.Helper()
	l := listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				heard, err := io.ReadAll(conn)
				if err == nil {
					_, _ = io.WriteString(conn, name+" "+strings.ToUpper(string(heard)))
				}
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, to net.Listener) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", to.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// tell says something, says that this was all, and returns the answer.
func tell(t *testing.T, to net.Listener, words string) string {
	t.Helper()
	conn := dial(t, to)
	_, err := io.WriteString(conn, words)
	answer, read := "", error(nil)
	if err = errors.Join(err, conn.CloseWrite()); err == nil {
		var raw []byte
		raw, read = io.ReadAll(conn)
		answer = string(raw)
	}
	if err := errors.Join(err, read); err != nil {
		t.Logf("the connection ended with %v", err)
	}
	return answer
}

func TestDoor(t *testing.T) {
	l := listen(t)
	d := newDoor(l)
	defer d.close()
	if got := tell(t, l, "anybody?"); got != "" {
		t.Errorf("a door that leads nowhere says %q", got)
	}
	long := strings.Repeat("hello ", 200_000)
	for _, name := range []string{"one", "two"} {
		d.leadTo(repeat(t, name))
		if got := tell(t, l, long); got != name+" "+strings.ToUpper(long) {
			t.Errorf("%s answered with %d bytes", name, len(got))
		}
	}
	gone := listen(t)
	_ = gone.Close()
	d.leadTo(gone.Addr().String())
	if got := tell(t, l, "anybody?"); got != "" {
		t.Errorf("nobody answered %q", got)
	}
}

// TestDoorCloses ends a connection on which nobody says anything.
func TestDoorCloses(t *testing.T) {
	l := listen(t)
	d := newDoor(l)
	d.leadTo(repeat(t, "one"))
	conn := dial(t, l)
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	d.close()
	if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection is still open: %v", err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the door is still open")
	}
}

func TestOpenDoorTwice(t *testing.T) {
	l := listen(t)
	port := int32(l.Addr().(*net.TCPAddr).Port)
	if _, err := openDoor(port); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a port that is taken was opened: %v", err)
	}
}
