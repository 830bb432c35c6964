// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"crypto/md5"  // what servers state, against accidents
	"crypto/sha1" // what git states, against accidents
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Kind of a checksum.
type Kind string

// Kinds in the order of preference.
const (
	SHA256 Kind = "SHA-256"
	SHA512 Kind = "SHA-512"
	GitSHA Kind = "git SHA-1"
	MD5    Kind = "MD5"
	CRC32C Kind = "CRC32C"
)

var preference = []Kind{SHA256, SHA512, GitSHA, MD5, CRC32C}

// Sum is what an object must add up to.
type Sum struct {
	Kind  Kind
	Value []byte
	// Doubtful is a sum that may be something else: the tag of an object that only looks like one.
	Doubtful bool
}

// Hex reads a sum in hexadecimal; nil when it is none.
func Hex(kind Kind, text string) []Sum {
	value, err := hex.DecodeString(text)
	return known(kind, value, err)
}

// Base64 reads a sum as headers have it; nil when it is none.
func Base64(kind Kind, text string) []Sum {
	value, err := base64.StdEncoding.DecodeString(text)
	return known(kind, value, err)
}

func known(kind Kind, value []byte, err error) []Sum {
	if err != nil || len(value) != kind.new(0).Size() {
		return nil
	}
	return []Sum{{Kind: kind, Value: value}}
}

func (k Kind) new(size int64) hash.Hash {
	switch k {
	case SHA256:
		return sha256.New()
	case SHA512:
		return sha512.New()
	case GitSHA:
		h := sha1.New() // as above
		fmt.Fprintf(h, "blob %d\x00", size)
		return h
	case MD5:
		return md5.New() // as above
	}
	return crc32.New(crc32.MakeTable(crc32.Castagnoli))
}

// best is the one sum to check.
func best(sums []Sum) *Sum {
	for _, kind := range preference {
		if i := slices.IndexFunc(sums, func(s Sum) bool { return s.Kind == kind }); i >= 0 {
			return &sums[i]
		}
	}
	return nil
}

var md5Tag = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^"?[0-9a-f]{32}"?$`) })

// stated finds the sums that an answer states for the whole object. Those for its body count only when the body is all.
func stated(response *http.Response, whole bool) []Sum {
	h := response.Header
	var sums []Sum
	for name, kind := range map[string]Kind{"sha-256": SHA256, "sha-512": SHA512, "md5": MD5} {
		sums = append(sums, digest(h.Values("Digest"), name, kind)...)
		sums = append(sums, digest(h.Values("Repr-Digest"), name, kind)...)
		if whole {
			sums = append(sums, digest(h.Values("Content-Digest"), name, kind)...)
		}
	}
	if whole {
		sums = append(sums, Base64(MD5, h.Get("Content-MD5"))...)
	}
	sums = append(sums, Base64(MD5, h.Get("X-Ms-Blob-Content-Md5"))...)
	if h.Get("X-Goog-Stored-Content-Encoding") != "gzip" {
		sums = append(sums, digest(h.Values("X-Goog-Hash"), "md5", MD5)...)
		sums = append(sums, digest(h.Values("X-Goog-Hash"), "crc32c", CRC32C)...)
	}
	if tag := h.Get("ETag"); s3Tag(h) && md5Tag().MatchString(tag) {
		for _, sum := range Hex(MD5, strings.Trim(tag, `"`)) {
			sum.Doubtful = true
			sums = append(sums, sum)
		}
	}
	return sums
}

// s3Tag tells whether an answer comes from S3 and its tag, if it looks like an MD5, is one: that of an object encrypted
// with a key of one's own is not.
func s3Tag(h http.Header) bool {
	return h.Get("X-Amz-Request-Id") != "" && !strings.HasPrefix(h.Get("X-Amz-Server-Side-Encryption"), "aws:") &&
		h.Get("X-Amz-Server-Side-Encryption-Customer-Algorithm") == ""
}

// digest reads "name=value" lists, with or without the colons of structured fields around the value.
func digest(values []string, name string, kind Kind) []Sum {
	for _, part := range strings.Split(strings.Join(values, ","), ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if ok && strings.EqualFold(key, name) {
			return Base64(kind, strings.Trim(value, ":"))
		}
	}
	return nil
}

// Fits tells whether a small content has the sums.
func Fits(sums []Sum, content []byte) bool {
	for _, sum := range sums {
		h := sum.Kind.new(int64(len(content)))
		h.Write(content)
		if !bytes.Equal(h.Sum(nil), sum.Value) {
			return false
		}
	}
	return true
}
