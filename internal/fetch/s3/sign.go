// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	emptyHash  = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	timeFormat = "20060102T150405Z"
	dayFormat  = "20060102"
)

// Keys are what requests are signed with.
type Keys struct{ ID, Secret, Token string }

// Sign adds a signature of version 4 to a request. The hash of a body must be in its header already.
func Sign(request *http.Request, k Keys, region string, at time.Time) {
	h := request.Header
	h.Set("X-Amz-Date", at.UTC().Format(timeFormat))
	if h.Get("X-Amz-Content-Sha256") == "" {
		h.Set("X-Amz-Content-Sha256", emptyHash)
	}
	if k.Token != "" {
		h.Set("X-Amz-Security-Token", k.Token)
	}
	names, headers := signedHeaders(request)
	canonical := strings.Join([]string{
		request.Method, request.URL.EscapedPath(), request.URL.RawQuery, headers, names, h.Get("X-Amz-Content-Sha256"),
	}, "\n")
	day := at.UTC().Format(dayFormat)
	scope := day + "/" + region + "/s3/aws4_request"
	digest := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", h.Get("X-Amz-Date"), scope, hex.EncodeToString(digest[:])}, "\n")
	key := mac(mac(mac(mac([]byte("AWS4"+k.Secret), day), region), "s3"), "aws4_request")
	h.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+k.ID+"/"+scope+",SignedHeaders="+names+",Signature="+hex.EncodeToString(mac(key, text)))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// signedHeaders are those that mean something to the storage. Others may be changed on the way.
func signedHeaders(request *http.Request) (names, lines string) {
	values := map[string]string{"host": request.Host}
	if request.Host == "" {
		values["host"] = request.URL.Host
	}
	for name, all := range request.Header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "x-amz-") || lower == "range" {
			values[lower] = strings.TrimSpace(strings.Join(all, ","))
		}
	}
	var sorted []string
	for name := range values {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		lines += name + ":" + values[name] + "\n"
	}
	return strings.Join(sorted, ";"), lines
}

// escape encodes as the signature wants it: everything but what needs no encoding anywhere.
func escape(text string, slash bool) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	const digits = "0123456789ABCDEF"
	var out strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case strings.IndexByte(plain, c) >= 0, slash && c == '/':
			out.WriteByte(c)
		default:
			out.WriteByte('%')
			out.WriteByte(digits[c>>4])
			out.WriteByte(digits[c&15])
		}
	}
	return out.String()
}

// query writes parameters in the one order and form that signatures allow.
func query(values url.Values) string {
	var parts []string
	for name, all := range values {
		for _, value := range all {
			parts = append(parts, escape(name, false)+"="+escape(value, false))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "&")
}
