// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"strings"
)

// trouble makes the program fail as its first argument says. It serves when there is none, or only flags, as components of
// services get them.
func trouble(args []string) {
	if len(args) == 0 || strings.HasPrefix(args[0], "--") {
		return
	}
	switch args[0] {
	case "fail": // with the words that follow
		fail(errors.New(strings.Join(args[1:], " ")))
	case "grow": // until somebody ends it
		for memory := [][]byte{}; ; {
			block := make([]byte, 1<<20)
			for i := 0; i < len(block); i += os.Getpagesize() {
				block[i] = 1 // memory that is never touched is not given
			}
			memory = append(memory, block)
		}
	}
	fail(errors.New("unknown argument " + args[0]))
}
