// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	channel = "maas_api_keys"
	// Of a beat that came back, no change before it was sent can have been missed: the database tells them in the order in which they
	// were committed. So a cache may believe itself for lease from the sending on, and a key that is revoked is refused
	// everywhere within that time even where a connection dies without a word.
	beat, lease = 250 * time.Millisecond, 900 * time.Millisecond
	// pingMark begins what we send ourselves; ids of keys do not.
	pingMark = "ping "
	// longestPause between two attempts to listen.
	longestPause = 2 * time.Second
)

// listener is a connection on which the database tells of changes.
type listener interface {
	// send tells all who listen, this one included.
	send(ctx context.Context, text string) error
	// receive waits; with a context that ends it returns ok false and stays usable.
	receive(ctx context.Context) (text string, ok bool, err error)
	close()
}

// Watch tells a sink of all changes until the context ends. It connects again as often as it must; meanwhile the sink is
// not told to trust itself.
func (s *Store) Watch(ctx context.Context, sink Sink) error {
	s.mu.Lock()
	s.sinks[sink] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.sinks, sink)
		s.mu.Unlock()
	}()
	if s.listen == nil { // nobody else writes here
		sink.ForgetAll()
		sink.Trust(time.Unix(0, math.MaxInt64))
		<-ctx.Done()
		return nil
	}
	pause := beat
	for ctx.Err() == nil {
		began := time.Now()
		err := s.watchOnce(ctx, sink)
		if ctx.Err() != nil {
			break
		}
		s.log.Warn("Changes of keys are not heard; until they are, every key is looked up in the database", "err", err.Error())
		if time.Since(began) > longestPause {
			pause = beat
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
	return nil
}

// watchOnce listens on one connection until it breaks.
func (s *Store) watchOnce(ctx context.Context, sink Sink) error {
	opening, cancel := context.WithTimeout(ctx, s.within)
	l, err := s.listen(opening)
	cancel()
	if err != nil {
		return err
	}
	defer l.close()
	sink.ForgetAll() // nobody told of what changed before
	mark := pingMark + rand.Text()
	for n := 0; ; n++ {
		sent := time.Now()
		ping := fmt.Sprintf("%s %d", mark, n)
		if err := s.heartbeat(ctx, l, sink, ping); err != nil {
			return err
		}
		sink.Trust(sent.Add(lease))
		if err := s.hear(ctx, l, sink, sent.Add(beat)); err != nil {
			return err
		}
	}
}

// heartbeat sends a message and waits until it comes back, with all changes that were before it.
func (s *Store) heartbeat(ctx context.Context, l listener, sink Sink, ping string) error {
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	if err := l.send(ctx, ping); err != nil {
		return err
	}
	for {
		text, ok, err := l.receive(ctx)
		switch {
		case err != nil:
			return err
		case !ok:
			return errors.New("what is told does not come back; is there a connection pool between this process and PostgreSQL that does not keep sessions?")
		case text == ping:
			return nil
		}
		changed(sink, text)
	}
}

// hear passes on changes until a time.
func (s *Store) hear(ctx context.Context, l listener, sink Sink, until time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for {
		text, ok, err := l.receive(ctx)
		if err != nil || !ok {
			return err
		}
		changed(sink, text)
	}
}

// changed understands what the trigger tells.
func changed(sink Sink, text string) {
	switch {
	case strings.HasPrefix(text, pingMark):
	case text == "*":
		sink.ForgetAll()
	default:
		for id := range strings.SplitSeq(text, ",") {
			sink.Forget(id)
		}
	}
}

// postgresListener is a connection of its own, which no pool hands to others.
type postgresListener struct{ conn *pgx.Conn }

func listenPostgres(ctx context.Context, config *pgx.ConnConfig) (listener, error) {
	conn, err := pgx.ConnectConfig(ctx, config.Copy())
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return &postgresListener{conn}, nil
}

func (l *postgresListener) send(ctx context.Context, text string) error {
	_, err := l.conn.Exec(ctx, "SELECT pg_notify($1, $2)", channel, text)
	return err
}

func (l *postgresListener) receive(ctx context.Context) (string, bool, error) {
	n, err := l.conn.WaitForNotification(ctx)
	switch {
	case err == nil:
		return n.Payload, true, nil
	case ctx.Err() != nil && !l.conn.IsClosed():
		return "", false, nil
	}
	return "", false, err
}

func (l *postgresListener) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx) // it may be broken already
}
