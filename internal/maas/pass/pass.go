// SPDX-License-Identifier: Apache-2.0

// Package pass makes and checks passes: what those who check requests at a gateway show the internal routes of maas-api, to be
// told of keys and subscriptions. A pass is good for one tenant and until a time that it names; it is signed with a key that
// only the controller and that tenant's maas-api have. Whoever reads a pass cannot make another, and a pass is only good for
// asking. No pass is kept anywhere but in the Secret that it is shown from, and none ever reaches a log.
package pass

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Header is what a pass is shown in.
const Header = "X-MaaS-Pass"

// Period is how long a pass is the newest. It is good for one period more, in which those who show it go over to the next.
const Period = 30 * 24 * time.Hour

// version of the form of a pass.
const version = "v1"

// Now is the period that a time is in, counted since 1970, and how long it still lasts.
func Now(t time.Time) (period int64, left time.Duration) {
	period = t.Unix() / int64(Period/time.Second)
	return period, time.Unix((period+1)*int64(Period/time.Second), 0).Sub(t)
}

// Key signs passes.
type Key []byte

// least is how long a key must be.
const least = 32

// NewKey is the text of a new key.
func NewKey() string {
	raw := make([]byte, least)
	_, _ = rand.Read(raw) // never fails
	return base64.StdEncoding.EncodeToString(raw)
}

// errShort says nothing of the key itself.
var errShort = errors.New("a key must be at least 32 bytes, in base64")

// ParseKeys reads keys, one on each line. The first signs, and all of them are good for checking, so that a key can be replaced
// while passes of the former one are shown.
func ParseKeys(text string) ([]Key, error) {
	var out []Key
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(raw) < least {
			return nil, errShort
		}
		out = append(out, raw)
	}
	if len(out) == 0 {
		return nil, errShort
	}
	return out, nil
}

// Of is the pass of a tenant for a period. It is the same whenever it is made.
func (k Key) Of(tenant string, period int64) string {
	until := strconv.FormatInt((period+2)*int64(Period/time.Second), 10) //nolint:mnd // the period, and one more
	return version + "." + until + "." + k.sign(tenant, until)
}

func (k Key) sign(tenant, until string) string {
	mac := hmac.New(sha256.New, k)
	mac.Write([]byte("maas-api internal routes\x00" + version + "\x00" + tenant + "\x00" + until))
	return hex.EncodeToString(mac.Sum(nil))
}

// Good tells whether a pass is one of a tenant that still holds. How long that takes says nothing of what would be good.
func Good(keys []Key, tenant, shown string, now time.Time) bool {
	parts := strings.Split(shown, ".")
	if len(parts) != 3 || parts[0] != version {
		return false
	}
	signed := false
	for _, k := range keys {
		if hmac.Equal([]byte(k.sign(tenant, parts[1])), []byte(parts[2])) {
			signed = true
		}
	}
	until, err := strconv.ParseInt(parts[1], 10, 64)
	return signed && err == nil && now.Unix() < until
}
