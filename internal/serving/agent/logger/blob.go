// SPDX-License-Identifier: Apache-2.0

package logger

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/azure"
	"github.com/modelplane/modelplane/internal/fetch/gcs"
	"github.com/modelplane/modelplane/internal/fetch/s3"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// blobs are how addresses of storages begin. Everything else is a receiver.
var blobs = []string{"s3", "gs", "abfs"}

// IsBlob tells whether an address is one of a storage.
func IsBlob(address string) bool {
	return slices.ContainsFunc(blobs, func(kind string) bool { return strings.HasPrefix(address, kind) })
}

// store is a storage that objects can be put into.
type store interface {
	Put(ctx context.Context, c *transfer.Client, key string, body []byte, contentType string) error
	Trust() transfer.Trust
}

// BlobOptions say where objects go and what they are like.
type BlobOptions struct {
	// URL is s3://BUCKET/PATH, gs://BUCKET/PATH or abfs://CONTAINER@ACCOUNT/PATH, and Path goes behind what says whose events
	// they are.
	URL, Path string
	About     About
	Marshaller
	// Size is how many events are in an object, and Interval how long it is waited for them; 0: a minute.
	Size     int
	Interval time.Duration
	Env      func(string) string
}

// Blob puts events into a storage, in order, as one object for each batch.
type Blob struct {
	BlobOptions
	store  store
	client *transfer.Client
	prefix string
}

// longestWait is for a batch that is to have a size and is not filled.
const longestWait = time.Minute

// NewBlob refuses what cannot be stored.
func NewBlob(o BlobOptions) (*Blob, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" {
		return nil, errors.New("--log-url is no address; write s3://BUCKET/PATH, gs://BUCKET/PATH or abfs://CONTAINER@ACCOUNT/PATH")
	}
	bucket := u.Host
	if u.User.Username() != "" {
		bucket = u.User.Username()
	}
	b := &Blob{BlobOptions: o}
	switch u.Scheme {
	case "s3":
		b.store, err = s3.Parse("s3://"+bucket+"/", o.Env)
	case "gs":
		b.store, err = gcs.Writer(bucket, o.Env)
	case "abfs":
		b.store, err = azure.Writer(bucket, o.Env)
	default:
		return nil, fmt.Errorf("the payload log cannot be written to %s:// addresses; use s3, gs, abfs, http or https in --log-url", u.Scheme)
	}
	if err != nil {
		return nil, fmt.Errorf("--log-url cannot be used: %w", err)
	}
	if b.client, err = transfer.New(1, b.store.Trust()); err != nil {
		return nil, fmt.Errorf("--log-url cannot be used: %w", err)
	}
	b.Marshaller.url, b.Marshaller.about = u, o.About
	b.prefix = path.Join(strings.Trim(u.Path, "/"), segment(o.About.Namespace), segment(o.About.Service), segment(o.About.Component), strings.Trim(o.Path, "/"))
	return b, nil
}

// segment keeps a name from being several, or none.
func segment(name string) string {
	if name == "." || name == ".." {
		return "_"
	}
	return strings.ReplaceAll(name, "/", "_")
}

// Batch is what the options say.
func (b *Blob) Batch() (size int, wait time.Duration) {
	if b.Interval <= 0 {
		return b.Size, longestWait
	}
	return b.Size, b.Interval
}

// Send stores a batch as one object.
func (b *Blob) Send(ctx context.Context, events []Event) error {
	body, extension, err := b.marshal(ctx, events)
	if err != nil {
		return err
	}
	key := path.Join(b.prefix, name(&events[0])+"."+extension)
	if err := b.store.Put(ctx, b.client, key, body, contentTypes[extension]); err != nil {
		return fmt.Errorf("the payload log cannot be stored: %w; check the address and that the logger's service account may write there", err)
	}
	return nil
}

var contentTypes = map[string]string{"json": "application/json", "csv": "text/csv"}

// name of the object that begins with an event. An id that a client chose may be one that it chose before, or that
// somebody else chose.
func name(e *Event) string {
	if !e.Foreign {
		return e.ID + "-" + string(e.Kind)
	}
	id := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, e.ID)
	var apart [4]byte
	_, _ = rand.Read(apart[:]) // never fails
	return id[:min(len(id), 100)] + "-" + hex.EncodeToString(apart[:]) + "-" + string(e.Kind)
}
