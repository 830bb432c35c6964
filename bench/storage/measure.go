// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// plan is what to measure.
type plan struct {
	size, small, rate int64
	count             int
	latency           time.Duration
	parallel, rounds  int
	dir, binary       string
}

// store is a server with one large object and many small ones, in the form of S3. Content is made up as it is sent.
type store struct {
	plan
	requests atomic.Int64
}

// pattern is what all content is made of; it does not compress.
var pattern = func() []byte {
	random := rand.New(rand.NewPCG(1, 2)) // content of a benchmark
	out := make([]byte, 1<<20)
	for i := range out {
		out[i] = byte(random.Uint32())
	}
	return out
}()

// content reads the pattern again and again.
type content struct{ at, size int64 }

func (c *content) Read(p []byte) (int, error) {
	if c.at >= c.size {
		return 0, io.EOF
	}
	from := pattern[c.at%int64(len(pattern)):]
	n := copy(p[:min(int64(len(p)), c.size-c.at)], from)
	c.at += int64(n)
	return n, nil
}

func (c *content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.size
	}
	c.at = offset
	return c.at, nil
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	if s.latency > 0 {
		<-time.After(s.latency)
	}
	key, _ := strings.CutPrefix(r.URL.Path, "/models/")
	size := s.small
	switch {
	case r.URL.Query().Get("list-type") == "2":
		s.list(w, r.URL.Query().Get("prefix"), r.URL.Query().Get("continuation-token"))
		return
	case key == "large.bin":
		size = s.size
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"fixed"`)
	if s.rate > 0 {
		w = &slow{w, s.rate}
	}
	http.ServeContent(w, r, "", time.Time{}, &content{size: size})
}

// slow is a connection with a bound.
type slow struct {
	http.ResponseWriter
	rate int64
}

func (s *slow) Write(p []byte) (int, error) {
	<-time.After(time.Duration(float64(len(p)) / float64(s.rate) * float64(time.Second)))
	return s.ResponseWriter.Write(p)
}

// list answers a thousand keys at a time, as S3 does.
func (s *store) list(w http.ResponseWriter, prefix, token string) {
	type entry struct {
		Key  string
		Size int64
	}
	var answer struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string
		Contents              []entry
	}
	from, err := strconv.Atoi(token)
	if err != nil {
		from = 0
	}
	if prefix == "large.bin" {
		answer.Contents = []entry{{prefix, s.size}}
	} else {
		for i := from; i < min(s.count, from+1000); i++ {
			answer.Contents = append(answer.Contents, entry{smallKey(i), s.small})
		}
		answer.IsTruncated = from+1000 < s.count
		answer.NextContinuationToken = strconv.Itoa(from + 1000)
	}
	_ = xml.NewEncoder(w).Encode(answer) // the client may go
}

func smallKey(i int) string { return fmt.Sprintf("small/%02d/%05d", i%16, i) }

// figures of one kind of download.
type figures struct {
	Seconds  float64 `json:"seconds"`
	PerSec   float64 `json:"bytesPerSecond"`
	Requests int64   `json:"requests"`
	PeakRSS  int64   `json:"peakRSSBytes"`
}

func (p *plan) measure(ctx context.Context) (*report, error) {
	dir, err := os.MkdirTemp(p.dir, "modelplane-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	s := &store{plan: *p}
	server := httptest.NewServer(s)
	defer server.Close()
	out := &report{Plan: *p, Size: p.size, Files: p.count, Small: p.small}
	type kind struct {
		into  *figures
		bytes int64
		do    func(dir string) (int64, error)
	}
	one := []string{"large.bin"}
	var many []string
	for i := range p.count {
		many = append(many, smallKey(i))
	}
	for _, k := range []kind{
		{&out.LargePlain, p.size, func(dir string) (int64, error) { return 0, plain(ctx, server.URL, one, dir) }},
		{&out.LargeOurs, p.size, func(dir string) (int64, error) { return p.ours(ctx, server.URL, "s3://models/large.bin", dir) }},
		{&out.SmallPlain, p.small * int64(p.count), func(dir string) (int64, error) { return 0, plain(ctx, server.URL, many, dir) }},
		{&out.SmallOurs, p.small * int64(p.count), func(dir string) (int64, error) { return p.ours(ctx, server.URL, "s3://models/small", dir) }},
	} {
		for range p.rounds {
			into := filepath.Join(dir, "models")
			before := s.requests.Load()
			start := time.Now()
			rss, err := k.do(into)
			if err != nil {
				return nil, err
			}
			if took := time.Since(start).Seconds(); k.into.Seconds == 0 || took < k.into.Seconds {
				k.into.Seconds, k.into.PerSec = took, float64(k.bytes)/took
			}
			k.into.Requests = s.requests.Load() - before
			k.into.PeakRSS = max(k.into.PeakRSS, rss)
			if err := os.RemoveAll(into); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// plain is the download that everybody writes first. It makes sure that content is on the disk, as ours does.
func plain(ctx context.Context, server string, keys []string, dir string) error {
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	for _, key := range keys {
		if err := plainOne(ctx, client, server+"/models/"+key, filepath.Join(dir, key)); err != nil {
			return err
		}
	}
	return nil
}

func plainOne(ctx context.Context, client *http.Client, address, name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, response.Body)
	return errors.Join(err, f.Sync(), f.Close())
}

// ours runs the binary as a pod does and returns the most memory that it had.
func (p *plan) ours(ctx context.Context, server, source, dir string) (int64, error) {
	command := exec.CommandContext(ctx, p.binary, "storage-initializer", "--parallel", strconv.Itoa(p.parallel), "--log-level=error",
		"--termination-log="+filepath.Join(os.DevNull, "none"), source, dir)
	command.Env = []string{"AWS_ENDPOINT_URL=" + server, "awsAnonymousCredential=true", "HOME=/nonexistent"}
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return 0, err
	}
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, nil
	}
	return usage.Maxrss << 10, nil
}
