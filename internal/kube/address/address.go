// SPDX-License-Identifier: Apache-2.0

// Package address writes addresses for people: without the user, the password and the query that they may carry. Errors of
// package net/url repeat what they could not read, with the password in it; whoever tells of an address tells of it
// through here. It knows no cluster and no kind of storage.
package address

import (
	"net/url"
	"regexp"
	"strings"
	"sync"
)

const hidden = "…"

// Shown is an address without what may be secret in it. Of one that nobody can read less is left rather than more.
func Shown(address string) string {
	before, rest, found := strings.Cut(address, "://")
	if !found {
		return bare(address)
	}
	user, rest := split(address, rest)
	if strings.ContainsAny(user, "?#") {
		return before + "://" + hidden // where the query begins is anybody's guess
	}
	return before + "://" + withoutQuery(rest)
}

// Hide leaves users and passwords out of the addresses in a text.
func Hide(text string) string {
	return inText().ReplaceAllStringFunc(text, func(address string) string {
		before, rest, _ := strings.Cut(address, "://")
		user, rest := split(address, rest)
		if user == "" {
			return address
		}
		return before + "://" + hidden + "@" + rest
	})
}

var inText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]+`) })

// split separates user and password from the rest of an address. Where the address is broken they reach to its last "@",
// because a password may have any character in it that ought to have been escaped.
func split(address, rest string) (user, after string) {
	host := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		host = rest[:end]
	}
	at := strings.LastIndex(host, "@")
	if at < 0 && portless(host) {
		return "", rest
	}
	if _, err := url.Parse(address); err != nil {
		at = strings.LastIndex(rest, "@")
	}
	if at >= 0 {
		return rest[:at], rest[at+1:]
	}
	// A user and a password with no host after them, or a port that is none.
	name, _, _ := strings.Cut(rest, ":")
	return "", name + ":" + hidden
}

// portless tells whether a host has no colon but that before a port.
func portless(host string) bool {
	if strings.HasPrefix(host, "[") {
		_, host, _ = strings.Cut(host, "]")
	}
	_, port, found := strings.Cut(host, ":")
	return !found || strings.Trim(port, "0123456789") == ""
}

// bare is for paths, and for what lacks the beginning of an address.
func bare(address string) string {
	if at := strings.LastIndex(address, "@"); at > 0 && !strings.HasPrefix(address, "/") && strings.Contains(address[:at], ":") {
		return hidden + withoutQuery(address[at:])
	}
	return address
}

func withoutQuery(rest string) string {
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		return rest[:i]
	}
	return rest
}
