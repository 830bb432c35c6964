// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis counts in a server of Redis or Valkey, for all processes that share it. A subject is one hash there: what is used
// of each window and when it ends, and what is held in each lease. One script asks or counts all of it at once, by the
// server's clock, in one round trip. The hash goes when its last window is over.
type Redis struct {
	client redis.UniversalClient
	prefix string
	// now is nil for the server's own clock.
	now func() time.Time

	mu     sync.Mutex
	failed time.Time
}

// RedisOptions say where the server is.
type RedisOptions struct {
	// URL is redis://[user:password@]host:port/number, or rediss:// for TLS.
	URL string
	// Prefix of keys, for several tenants on one server; "maas:quota:" if empty.
	Prefix string
	// Timeout of one question; half a second if zero. A request waits so long at most.
	Timeout time.Duration
}

// pause is how long a server that does not answer is left alone. Requests are told at once meanwhile.
const pause = 200 * time.Millisecond

// ErrAway is that the server did not answer a moment ago.
var ErrAway = errors.New("the counters' server does not answer")

// OpenRedis needs no answer yet: the server may come later, and go and come back.
func OpenRedis(o RedisOptions) (*Redis, error) {
	options, err := redis.ParseURL(o.URL)
	if err != nil {
		return nil, errors.New("the address of the counters' server cannot be read; it is redis://[user:password@]host:port/number and is not shown because a password may be in it")
	}
	timeout := o.Timeout
	if timeout <= 0 {
		timeout = 500 * time.Millisecond
	}
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = timeout, timeout, timeout, timeout
	options.ContextTimeoutEnabled = true
	options.MaxRetries = -1 // a script that has counted must not count again
	options.DisableIdentity = true
	prefix := o.Prefix
	if prefix == "" {
		prefix = "maas:quota:"
	}
	return &Redis{client: redis.NewClient(options), prefix: prefix}, nil
}

// Close ends all connections.
func (r *Redis) Close() error { return r.client.Close() }

// Check asks whether the server answers.
func (r *Redis) Check(ctx context.Context) error { return r.client.Ping(ctx).Err() }

// key of a subject. Names are of any length and characters, so it is a digest; one subject is one key, which a cluster of
// servers has in one place.
func (r *Redis) key(s Subject) string {
	h := sha256.New()
	for _, part := range []string{s.User, s.Subscription, s.Model} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return r.prefix + base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}

// before is at the head of both scripts: the time, and what is held in this lease and the one before.
const before = `
local key, now, lease = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
if now == 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local state, flat = {}, redis.call('HGETALL', key)
for i = 1, #flat, 2 do state[flat[i]] = tonumber(flat[i + 1]) end
local current = math.floor(now / lease)
local function held(number, kind) return state['h' .. number .. kind] or 0 end
local function keep(last)
  if last > now then redis.call('PEXPIRE', key, last - now) end
end
local last = (current + 2) * lease
for name, value in pairs(state) do
  local first = string.sub(name, 1, 1)
  if first == 'e' then
    if value <= now then redis.call('HDEL', key, name, 'u' .. string.sub(name, 2)) state[name] = nil state['u' .. string.sub(name, 2)] = nil
    elseif value > last then last = value end
  elseif first == 'h' and tonumber(string.sub(name, 2, -2)) < current - 1 then redis.call('HDEL', key, name) end
end
`

// reserve has behind them: p, c and t that are wanted, and kind, tokens and milliseconds of each limit. It answers the
// number of the limit that refuses (0: none), milliseconds to wait and whether others are in the way; and the lease.
var reserve = redis.NewScript(before + `
local wait, by, busy = -1, 0, 0
for i = 6, #ARGV, 3 do
  local kind, tokens, window = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local id = kind .. ARGV[i + 2]
  local spent, left = 0, window
  if state['e' .. id] then spent, left = state['u' .. id] or 0, state['e' .. id] - now end
  if spent + held(current, kind) + held(current - 1, kind) >= tokens then
    local occupied = 0
    if spent < tokens then left, occupied = math.min(left, 1000), 1 end
    if left > wait then wait, by, busy = left, (i - 3) / 3, occupied end
  end
end
if by > 0 then return {by, wait, busy, current} end
for i, kind in ipairs({'p', 'c', 't'}) do
  local n = tonumber(ARGV[2 + i])
  if n > 0 then redis.call('HINCRBY', key, 'h' .. current .. kind, n) end
end
keep(last)
return {0, 0, 0, current}
`)

// settle has behind them: the lease of the hold, its p, c and t, those used, and kind and milliseconds of each window.
var settle = redis.NewScript(before + `
local from = tonumber(ARGV[3])
for i, kind in ipairs({'p', 'c', 't'}) do
  local had = held(from, kind)
  if from >= current - 1 and had > 0 then
    local rest = had - tonumber(ARGV[3 + i])
    if rest > 0 then redis.call('HSET', key, 'h' .. from .. kind, string.format('%.0f', rest)) else redis.call('HDEL', key, 'h' .. from .. kind) end
  end
end
local used = {p = ARGV[7], c = ARGV[8], t = ARGV[9]}
for i = 10, #ARGV, 2 do
  local kind, window = ARGV[i], tonumber(ARGV[i + 1])
  local id = kind .. ARGV[i + 1]
  if tonumber(used[kind]) > 0 then
    if not state['e' .. id] then
      local ends = now + window
      state['e' .. id] = ends
      redis.call('HSET', key, 'e' .. id, string.format('%.0f', ends))
      if ends > last then last = ends end
    end
    redis.call('HINCRBY', key, 'u' .. id, used[kind])
  end
end
keep(last)
return 0
`)

func (r *Redis) clock() int64 {
	if r.now == nil {
		return 0
	}
	return r.now().UnixMilli()
}

// Reserve is of Counters.
func (r *Redis) Reserve(ctx context.Context, s Subject, limits []Limit, want Tokens) (Verdict, error) {
	if err := check(limits); err != nil {
		return Verdict{}, err
	}
	if err := r.rests(); err != nil {
		return Verdict{}, err
	}
	hold := Hold{Subject: s, Limits: limits, Tokens: held(limits, want)}
	args := make([]any, 0, 5+3*len(limits))
	args = append(args, r.clock(), lease.Milliseconds(), hold.Tokens.Prompt, hold.Tokens.Completion, hold.Tokens.Total)
	for _, l := range limits {
		args = append(args, string(l.kind()), l.Tokens, l.Window.Milliseconds())
	}
	got, err := reserve.Run(ctx, r.client, []string{r.key(s)}, args...).Int64Slice()
	r.note(ctx, err)
	switch {
	case err != nil:
		return Verdict{}, fmt.Errorf("ask the counters' server: %w", err)
	case len(got) != 4 || got[0] < 0 || got[0] > int64(len(limits)):
		return Verdict{}, errors.New("the counters' server answers what nobody understands")
	case got[0] > 0:
		return Verdict{Refused: limits[got[0]-1], RetryAfter: time.Duration(got[1]) * time.Millisecond, Busy: got[2] == 1}, nil
	}
	hold.lease = got[3]
	return Verdict{Allowed: true, Hold: hold}, nil
}

// Settle is of Counters.
func (r *Redis) Settle(ctx context.Context, h Hold, used Tokens) error {
	if err := check(h.Limits); err != nil {
		return err
	}
	if err := r.rests(); err != nil {
		return err
	}
	used = used.whole()
	args := make([]any, 0, 9+2*len(h.Limits))
	args = append(args, r.clock(), lease.Milliseconds(), h.lease, h.Tokens.Prompt, h.Tokens.Completion, h.Tokens.Total,
		used.Prompt, used.Completion, used.Total)
	counted := make(map[span]bool, len(h.Limits))
	for _, l := range h.Limits {
		if k := (span{l.kind(), l.Window}); !counted[k] {
			counted[k] = true
			args = append(args, string(k.of), strconv.FormatInt(k.window.Milliseconds(), 10))
		}
	}
	err := settle.Run(ctx, r.client, []string{r.key(h.Subject)}, args...).Err()
	r.note(ctx, err)
	if err != nil {
		return fmt.Errorf("tell the counters' server: %w", err)
	}
	return nil
}

// rests tells that the server did not answer a moment ago, so that not every request waits for that.
func (r *Redis) rests() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed.IsZero() && time.Since(r.failed) < pause {
		return ErrAway
	}
	return nil
}

// note remembers whether the server answered. A caller that went away says nothing of it.
func (r *Redis) note(ctx context.Context, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.failed = time.Time{}
	case !errors.Is(ctx.Err(), context.Canceled):
		r.failed = time.Now()
	}
}
