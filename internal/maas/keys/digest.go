// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
)

// pepperedPrefix tells a digest that nobody can make without the pepper from one that only needs the key.
const pepperedPrefix = "hmac-sha256:"

// minPepper is the fewest bytes of a pepper: as many as nobody tries.
const minPepper = 16

// Digester makes what is stored of a key. A secret of 256 random bits needs no slow digest: there is nothing to guess. A
// pepper, which is not kept in the database, makes rows worthless that somebody wrote into it.
type Digester struct{ pepper []byte }

// NewDigester takes a pepper, or nothing.
func NewDigester(pepper []byte) (*Digester, error) {
	if len(pepper) > 0 && len(pepper) < minPepper {
		return nil, fmt.Errorf("the pepper of API keys has %d bytes; give it at least %d random ones", len(pepper), minPepper)
	}
	return &Digester{pepper}, nil
}

// Digest is what a new row has.
func (d *Digester) Digest(k Key) string {
	if len(d.pepper) == 0 {
		return plain(k)
	}
	return d.peppered(k)
}

// Candidates are all digests under which the key may be stored: rows from before there was a pepper stay valid.
func (d *Digester) Candidates(k Key) []string {
	if len(d.pepper) == 0 {
		return []string{plain(k)}
	}
	return []string{d.peppered(k), plain(k)}
}

// Matches compares a stored digest with those of a key, in the same time whether it fits or not.
func (d *Digester) Matches(stored string, k Key) bool {
	fits := 0
	for _, candidate := range d.Candidates(k) {
		fits |= subtle.ConstantTimeCompare([]byte(stored), []byte(candidate))
	}
	return fits == 1
}

// Peppered tells whether a stored digest needs a pepper to be made.
func Peppered(stored string) bool { return strings.HasPrefix(stored, pepperedPrefix) }

// plain is the digest that existing databases have.
func plain(k Key) string {
	h := sha256.New()
	_, _ = h.Write(message(k)) // a hash takes everything
	return hex.EncodeToString(h.Sum(nil))
}

func (d *Digester) peppered(k Key) string {
	h := hmac.New(sha256.New, d.pepper)
	_, _ = h.Write(message(k)) // as above
	return pepperedPrefix + hex.EncodeToString(h.Sum(nil))
}

// message has a byte between the parts that neither can contain.
func message(k Key) []byte { return []byte(k.id + "\x00" + k.secret) }
