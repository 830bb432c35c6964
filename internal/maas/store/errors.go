// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	sqlitedriver "modernc.org/sqlite"
)

// Unavailable is a database that does not answer, or not in time, or cannot write for want of room.
type Unavailable struct{ Err error }

func (u *Unavailable) Error() string { return "the database does not answer: " + u.Err.Error() }

func (u *Unavailable) Unwrap() error { return u.Err }

// Refused tells that waiting does not help against an error of Open: somebody must change the password, the address or the
// database.
func Refused(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok { // who it is, what they may, and a database that is not there
		return strings.HasPrefix(pg.Code, "28") || pg.Code == "3D000" || pg.Code == "42501"
	}
	_, away := errors.AsType[*Unavailable](err)
	return !away
}

// outcome says what an error of the database means.
func (s *Store) outcome(err error) error {
	if err == nil || !isAway(err) {
		return err
	}
	if _, told := errors.AsType[*Unavailable](err); told {
		return err
	}
	return &Unavailable{err}
}

// isAway tells a database that cannot be reached, has no room or is too busy from a question that it refuses.
func isAway(err error) bool {
	for _, away := range []error{context.DeadlineExceeded, driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, away) {
			return true
		}
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok { // no connection, no resources, an operator at work, a deadlock, read-only
		for _, class := range []string{"08", "53", "57", "40", "25006"} {
			if strings.HasPrefix(pg.Code, class) {
				return true
			}
		}
		return false
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if lite, ok := errors.AsType[*sqlitedriver.Error](err); ok {
		switch lite.Code() & 0xff {
		case liteBusy, liteIO, liteFull, liteCannotOpen:
			return true
		}
		return false
	}
	return strings.Contains(err.Error(), "conn closed")
}

// codes of SQLite.
const liteBusy, liteIO, liteFull, liteCannotOpen = 5, 10, 13, 14
