// SPDX-License-Identifier: Apache-2.0

// Package keys is what an API key is: how it looks, how it is made, what of it may be stored, which names, labels and
// lifetimes it may have, and whether it may be used now. It also has the cache by which a key is checked without asking a
// database. It knows no SQL, no HTTP and no Kubernetes.
package keys

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Prefix is how every key begins, so that gateways and scanners for lost secrets know one when they see it.
const Prefix = "sk-oai-"

const (
	alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	// idLength and secretLength are in characters of the alphabet: 95 and 256 bits.
	idLength, secretLength = 16, 43
	shownLength            = 12
	// maxLength is the longest that a key may be: those of others may be longer than ours, but not without end.
	maxLength = 256
)

// ErrFormat is a text that is no key. It does not say what the text was.
var ErrFormat = errors.New("invalid key format")

// Key is a key as its owner has it. Whatever prints one shows only what is no secret; Reveal gives all of it.
type Key struct{ id, secret string }

// Mint makes a key that nobody can guess.
func Mint() (Key, error) { return mint(rand.Reader) }

func mint(random io.Reader) (Key, error) {
	id, err := letters(random, idLength)
	if err != nil {
		return Key{}, err
	}
	secret, err := letters(random, secretLength)
	return Key{id, secret}, err
}

// letters are evenly distributed: bytes that would make some of them likelier are thrown away.
func letters(random io.Reader, n int) (string, error) {
	const fair = 256 / len(alphabet) * len(alphabet)
	out, buffer := make([]byte, 0, n), make([]byte, n+n/4)
	for len(out) < n {
		if _, err := io.ReadFull(random, buffer); err != nil {
			return "", fmt.Errorf("make a key: %w", err)
		}
		for _, b := range buffer {
			if int(b) < fair && len(out) < n {
				out = append(out, alphabet[int(b)%len(alphabet)])
			}
		}
	}
	return string(out), nil
}

// Parse understands a key of ours, and of servers that had the same form before. Its error never has the text in it.
func Parse(text string) (Key, error) {
	rest, found := strings.CutPrefix(text, Prefix)
	if !found || len(text) > maxLength {
		return Key{}, ErrFormat
	}
	id, secret, found := strings.Cut(rest, "_")
	if !found || !isBase62(id) || !isBase62(secret) {
		return Key{}, ErrFormat
	}
	return Key{id, secret}, nil
}

func isBase62(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return s != ""
}

// Reveal is the whole key, for the one who is given it.
func (k Key) Reveal() string { return Prefix + k.id + "_" + k.secret }

// Display is the part by which an owner recognises a key.
func (k Key) Display() string { return Prefix + k.id[:min(shownLength, len(k.id))] + "..." }

// String, GoString and LogValue keep the secret out of logs and errors.
func (k Key) String() string { return k.Display() }

// GoString is for %#v.
func (k Key) GoString() string { return k.Display() }

// LogValue is for log/slog.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.Display()) }
