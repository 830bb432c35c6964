// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
	"github.com/modelplane/modelplane/internal/modelregistry/catalog/hub"
	"github.com/modelplane/modelplane/internal/modelregistry/catalog/sources"
)

// keeper keeps the snapshot up to date. All of its fields but current belong to the one goroutine that runs it.
type keeper struct {
	paths, performance []string
	getenv             func(string) string
	log                *slog.Logger
	metrics            *Metrics

	current atomic.Pointer[snapshot]
	// readable: at least one sources file could be read.
	readable atomic.Bool

	files    map[string]*file
	loaded   map[string]*loaded
	measured map[string]*sources.Measured
	// generation counts how often measurements were read; they change models.
	generation int
	// read: something was read since the last snapshot.
	read bool
	// stale: measurements have changed.
	stale   bool
	hubs    map[string]*reader
	results chan result
	told    map[string]string
}

// file is the last good content of a sources file.
type file struct {
	sum    string
	parsed *sources.File
}

// loaded is the last good content of a source.
type loaded struct {
	key string
	sources.Read
}

// maxAllEntries bounds the memory of all sources together.
const maxAllEntries = 100_000

func newKeeper(paths, performance []string, getenv func(string) string, log *slog.Logger, m *Metrics) *keeper {
	k := &keeper{
		paths: paths, performance: performance, getenv: getenv, log: log, metrics: m,
		files: map[string]*file{}, loaded: map[string]*loaded{}, hubs: map[string]*reader{}, results: make(chan result), told: map[string]string{},
	}
	k.current.Store(newSnapshot(nil, nil, sources.Merged{}))
	return k
}

// tell logs a problem once, and its end.
func (k *keeper) tell(about, problem string) {
	switch problem {
	case k.told[about]:
	case "":
		delete(k.told, about)
		k.log.Info("Well again", "what", about)
	default:
		k.told[about] = problem
		k.log.Error("Something cannot be shown", "what", about, "problem", problem)
	}
}

func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// remeasure reads measurements again.
func (k *keeper) remeasure() {
	if len(k.performance) == 0 {
		return
	}
	measured, problems := sources.Measurements(k.performance)
	k.measured = measured
	k.generation++
	k.tell("measurements", sources.Told(problems))
}

// reload reads what has changed and shows it.
func (k *keeper) reload(ctx context.Context) {
	merged := sources.Merge(k.readFiles())
	k.tell("sources", strings.Join(merged.Problems, " "))
	var states []sourceState
	entries, total := map[*entry.Kind][]*entry.Entry{}, 0
	for _, s := range merged.Sources {
		if s.Name == "" {
			s.Name = s.ID
		}
		read, state := k.source(ctx, s)
		if total+len(read) > maxAllEntries {
			read, state.Status, state.Problem = nil, failing, fmt.Sprintf("All sources together have more than %d entries; exclude some.", maxAllEntries)
		}
		total += len(read)
		entries[s.Kind] = append(entries[s.Kind], read...)
		states = append(states, state)
		k.tell("source "+s.ID, state.Problem)
	}
	k.forget(merged.Sources)
	shown := newSnapshot(states, entries, merged)
	k.current.Store(shown)
	k.metrics.shows(shown)
	if k.read {
		// Reading takes several times what is kept, and the next time may be far off.
		k.read = false
		debug.FreeOSMemory()
	}
}

func (k *keeper) readFiles() []*sources.File {
	var out []*sources.File
	failed := 0
	for _, path := range k.paths {
		err := k.readFile(path)
		problem := ""
		if err != nil {
			problem = err.Error()
			failed++
			if k.files[path] != nil {
				problem += "; what it said before is shown"
			}
		}
		k.tell("file "+path, problem)
		if f := k.files[path]; f != nil {
			out = append(out, f.parsed)
		}
	}
	k.metrics.unreadable.Set(float64(failed))
	k.readable.Store(len(out) > 0)
	return out
}

func (k *keeper) readFile(path string) error {
	data, err := sources.ReadFile(path, sources.MaxSourcesFile)
	if err != nil {
		return err
	}
	sum := digest(data)
	if f := k.files[path]; f != nil && f.sum == sum {
		return nil
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return err
	}
	parsed, err := sources.Parse(data, dir)
	if err != nil {
		return err
	}
	k.files[path] = &file{sum, parsed}
	return nil
}

// source is what a source has now, and how it is.
func (k *keeper) source(ctx context.Context, s sources.Source) ([]*entry.Entry, sourceState) {
	state := sourceState{Source: s, Status: available}
	if !s.IsEnabled() {
		state.Status = disabled
		delete(k.loaded, s.ID)
		return nil, state
	}
	var failed []string
	var err error
	switch {
	case s.Type == "yaml":
		failed, err = k.fromFile(s)
	case s.Type == "hf" && s.Text("apiKey") != "":
		err = errors.New("a token must not be in a sources file; name a variable of the environment in apiKeyEnvVar")
	case s.Type == "hf":
		failed, err = k.fromHub(ctx, s)
	default:
		err = fmt.Errorf("type %q is unknown; use yaml or hf", s.Type)
	}
	has := k.loaded[s.ID]
	if err != nil {
		state.Status, state.Problem = failing, err.Error()
		if has != nil && len(has.Entries) > 0 {
			state.Status, state.Problem = partially, state.Problem+"; what was read before is shown"
		}
	}
	if has == nil {
		return nil, state
	}
	if err == nil && len(failed) > 0 {
		state.Status, state.Problem = partially, sources.Told(failed)
		if len(has.Entries) == 0 {
			state.Status = failing
		}
	}
	return has.Entries, state
}

// keyOf tells whether a source has to be read again.
func (k *keeper) keyOf(s sources.Source, data []byte) string {
	config, err := json.Marshal([]any{s.Kind.Asset, s.ID, s.Type, s.Properties, s.Dir, s.Included, s.Excluded})
	if err != nil {
		return ""
	}
	return digest(config, data, []byte(strconv.Itoa(k.generation)))
}

func (k *keeper) fromFile(s sources.Source) (failed []string, err error) {
	path := s.Path()
	if path == "" {
		return nil, errors.New("properties.yamlCatalogPath is missing; name the file that lists the entries")
	}
	data, err := sources.ReadFile(path, sources.MaxCatalogFile)
	if err != nil {
		return nil, err
	}
	key := k.keyOf(s, data)
	if has := k.loaded[s.ID]; has != nil && has.key == key {
		return has.Failed, nil
	}
	objects, unknown, err := sources.Objects(s.Kind, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	read := s.Entries(objects)
	if unknown = append(unknown, read.Unknown...); len(unknown) > 0 {
		slices.Sort(unknown)
		k.log.Info("Fields that the catalog does not know are left out", "source", s.ID, "fields", sources.Told(unknown))
	}
	k.load(s, key, read)
	return k.loaded[s.ID].Failed, nil
}

// load takes over what was read, with measurements.
func (k *keeper) load(s sources.Source, key string, read sources.Read) {
	for i, e := range read.Entries {
		m := k.measured[e.Name]
		if m == nil || s.Kind != entry.Models {
			continue
		}
		with, err := sources.Attach(e, m)
		if err != nil {
			read.Failed = append(read.Failed, e.Name+": its measurements: "+err.Error())
			continue
		}
		read.Entries[i] = with
	}
	k.loaded[s.ID], k.read = &loaded{key, read}, true
}

// forget sources that are no more.
func (k *keeper) forget(all []sources.Source) {
	gone := func(id string) bool {
		return !slices.ContainsFunc(all, func(s sources.Source) bool { return s.ID == id && s.IsEnabled() })
	}
	for id := range k.loaded {
		if gone(id) {
			delete(k.loaded, id)
		}
	}
	for id, r := range k.hubs {
		if gone(id) || !slices.ContainsFunc(all, func(s sources.Source) bool { return s.ID == id && s.Type == "hf" }) {
			r.stop()
			delete(k.hubs, id)
		}
	}
	for about := range k.told {
		if id, ok := strings.CutPrefix(about, "source "); ok && !slices.ContainsFunc(all, func(s sources.Source) bool { return s.ID == id }) {
			delete(k.told, about)
		}
	}
}

// reader reads one hub, again and again, beside everything else.
type reader struct {
	key  string
	stop context.CancelFunc
	// last is nil before the first answer.
	last *result
}

type result struct {
	id, key string
	hub.Result
	err error
}

func (k *keeper) fromHub(ctx context.Context, s sources.Source) (failed []string, err error) {
	h, err := hub.New(s, k.getenv)
	if err != nil {
		return nil, err
	}
	key := k.keyOf(s, nil)
	r := k.hubs[s.ID]
	if r == nil || r.key != key {
		if r != nil {
			r.stop()
		}
		working, stop := context.WithCancel(ctx)
		r = &reader{key: key, stop: stop}
		k.hubs[s.ID] = r
		go k.follow(working, h, s.ID, key)
	}
	switch {
	case r.last == nil && k.loaded[s.ID] != nil:
		return nil, nil // of an earlier configuration, until the answer comes
	case r.last == nil:
		return nil, errors.New("it is being read for the first time")
	case r.last.err != nil:
		return nil, r.last.err
	}
	// What a pattern stands for was decided when the hub was asked.
	s.Included, s.Excluded = nil, nil
	if has := k.loaded[s.ID]; has == nil || has.key != key {
		read := s.Entries(r.last.Objects())
		read.Failed = append(read.Failed, r.last.Failed...)
		k.load(s, key, read)
	}
	return k.loaded[s.ID].Failed, nil
}

// took takes over what a hub has answered; false if nobody waits for it any more.
func (k *keeper) took(r result) bool {
	reader := k.hubs[r.id]
	if reader == nil || reader.key != r.key {
		return false
	}
	outcome := "ok"
	if r.err != nil {
		outcome = "failed"
	} else if has := k.loaded[r.id]; has != nil {
		has.key = "" // read anew
	}
	k.metrics.hubs.WithLabelValues(outcome).Inc()
	reader.last = &r
	return true
}

// follow asks a hub at its interval. After a failure it is asked again earlier, at growing intervals.
func (k *keeper) follow(ctx context.Context, h *hub.Hub, id, key string) {
	var before map[string]hub.Model
	for failures := 0; ; {
		read, err := h.Read(ctx, before, time.Now())
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			before, failures = read.Models, 0
		} else {
			failures++
		}
		select {
		case k.results <- result{id, key, read, err}:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(jitter(max(pause(h.Interval, failures), hub.RetryAfter(err)))):
		case <-ctx.Done():
			return
		}
	}
}

// pause until a hub is asked again.
func pause(interval time.Duration, failures int) time.Duration {
	if failures == 0 {
		return interval
	}
	return min(time.Minute<<min(failures-1, 10), interval)
}

// jitter keeps replicas from asking at the same moment.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/10+1))
}
