// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"errors"
	"testing"
	"time"
)

func TestProgram(t *testing.T) {
	cluster := Start(t)
	t.Run("stops when asked and keeps what it wrote", func(t *testing.T) {
		p := cluster.Program(t, "polite", []string{"WORD=hello"}, "/bin/sh", "-c", `trap 'echo bye >&2; exit 0' TERM; echo $WORD; while :; do sleep 0.05; done`)
		Eventually(t, time.Minute, "the first word", func() error {
			if p.Output() != "hello\n" {
				return errors.New(p.Output())
			}
			return nil
		})
		if usage := p.Stop(t, time.Minute); usage == nil || usage.Maxrss == 0 {
			t.Errorf("what it used is not known: %+v", usage)
		}
		if got := p.Output(); got != "hello\nbye\n" {
			t.Errorf("it wrote %q", got)
		}
	})
	t.Run("is killed when it does not listen", func(t *testing.T) {
		p := cluster.Program(t, "rude", nil, "/bin/sh", "-c", `trap '' TERM; echo up; while :; do sleep 0.05; done`)
		Eventually(t, time.Minute, "it to listen no more", func() error {
			if p.Output() == "" {
				return errors.New("not yet")
			}
			return nil
		})
		p.Stop(t, 50*time.Millisecond)
		select {
		case <-p.Ended():
		default:
			t.Error("it still runs")
		}
	})
}
