// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	sqlitedriver "modernc.org/sqlite"

	"github.com/modelplane/modelplane/internal/modelregistry/server/entity"
)

// ErrNotFound is an entity that is not there.
var ErrNotFound = errors.New("there is no such entity")

// ErrChanged is an entity that somebody else has changed since the client read it.
var ErrChanged = errors.New("somebody else has changed it meanwhile; read it again")

// Conflict is an entity that cannot be made beside one that is there.
type Conflict struct{ Message string }

func (c *Conflict) Error() string { return c.Message }

// Unavailable is a database that does not answer, or not in time, or cannot write for want of room.
type Unavailable struct {
	Err error
	// Full tells that there is no room.
	Full bool
}

func (u *Unavailable) Error() string {
	if u.Full {
		return "the database has no room left; give its volume more, or remove what else is on it: " + u.Err.Error()
	}
	return "the database does not answer: " + u.Err.Error()
}

func (u *Unavailable) Unwrap() error { return u.Err }

// codes of errors: of PostgreSQL, of MySQL and of SQLite.
const (
	pgUnique, pgDuplicateTable, pgOutOfRange = "23505", "42P07", "22003"

	myDuplicate, myIndexThere, myOutOfRange, myDeadlock, myLockTimeout = 1062, 1061, 1264, 1213, 1205

	liteConstraint, liteFull, liteCannotOpen, liteIO, liteBusy = 19, 13, 14, 10, 5
	liteNoRoomForIndex                                         = liteIO | 19<<8 // of the log, which is a file beside the database
)

// Refused tells that waiting does not help against an error of Open: somebody must change the password, the address or the
// database, or make room on its disk.
func Refused(err error) bool {
	if isFull(err) {
		return true
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok { // who it is, and a database that is not there
		return strings.HasPrefix(pg.Code, "28") || pg.Code == "3D000"
	}
	if my, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
		return my.Number == 1044 || my.Number == 1045 || my.Number == 1049
	}
	return errors.Is(err, ErrDirty)
}

// isThere tells that an index exists already.
func isThere(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code == pgDuplicateTable
	}
	if my, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
		return my.Number == myIndexThere
	}
	return strings.Contains(err.Error(), "already exists")
}

// outcome says what an error of the database means.
func (s *Store) outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case s.isDuplicate(err):
		return duplicate(err)
	case isOutOfRange(err):
		return &entity.Invalid{Message: "a number is too large for this database, which keeps whole numbers of 32 bits"}
	case isFull(err):
		return &Unavailable{Err: err, Full: true}
	case s.isAway(err):
		return &Unavailable{Err: err}
	}
	return err
}

// isFull tells that the disk of the database has no room, or it is not given more of it.
func isFull(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code == "53100"
	}
	if my, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
		return my.Number == 1021 || my.Number == 1114
	}
	lite, ok := errors.AsType[*sqlitedriver.Error](err)
	return ok && (lite.Code()&0xff == liteFull || lite.Code() == liteNoRoomForIndex)
}

func (s *Store) isDuplicate(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code == pgUnique
	}
	if my, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
		return my.Number == myDuplicate
	}
	lite, ok := errors.AsType[*sqlitedriver.Error](err)
	return ok && lite.Code()&0xff == liteConstraint && strings.Contains(lite.Error(), "UNIQUE")
}

// duplicate names what exists twice, as far as the database tells.
func duplicate(err error) error {
	text := err.Error()
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		text = pg.ConstraintName
	}
	what := "name"
	if strings.Contains(text, "external_id") {
		what = "externalId"
	}
	return &Conflict{fmt.Sprintf("another entity has this %s already", what)}
}

func isOutOfRange(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code == pgOutOfRange
	}
	my, ok := errors.AsType[*mysqldriver.MySQLError](err)
	return ok && my.Number == myOutOfRange
}

// isAway tells that the database cannot be reached, has no room or is too busy, from a question that it refuses.
func (s *Store) isAway(err error) bool {
	for _, away := range []error{context.DeadlineExceeded, driver.ErrBadConn, mysqldriver.ErrInvalidConn, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, away) {
			return true
		}
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok { // no connection, no resources, an operator at work, a deadlock
		return strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "53") || strings.HasPrefix(pg.Code, "57P") || strings.HasPrefix(pg.Code, "40")
	}
	if my, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
		return my.Number == myDeadlock || my.Number == myLockTimeout || my.Number == 1040 || my.Number == 1053
	}
	if lite, ok := errors.AsType[*sqlitedriver.Error](err); ok {
		switch lite.Code() & 0xff {
		case liteCannotOpen, liteIO, liteBusy:
			return true
		}
	}
	return strings.Contains(err.Error(), "conn closed")
}
