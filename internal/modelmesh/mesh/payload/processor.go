// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
)

// processor is one address with what it wants to see; an empty filter wants everything.
type processor struct {
	sink          sink
	name          string // the address without a password, for the log
	model, method string
}

type sink interface {
	send(ctx context.Context, kind Kind, p Payload) error
}

// parse reads an address: the query is the id of a model (or of a virtual one), the fragment the name of a method, and
// neither is sent.
func parse(uri string, o Options) (processor, error) {
	u, err := url.Parse(uri)
	if err != nil {
		// The message of the parser repeats the address, password and all.
		return processor{}, fmt.Errorf("a payload processor has an address that is no URI; write http://host/path, https://host/path or logger://")
	}
	one := processor{model: queryOf(u), method: strings.TrimPrefix(u.Fragment, "/")}
	if one.model == "*" {
		one.model = ""
	}
	if one.method == "*" {
		one.method = ""
	}
	u.RawQuery, u.Fragment, u.RawFragment, u.ForceQuery = "", "", "", false
	one.name = u.Redacted()
	switch u.Scheme {
	case "logger":
		one.sink = logger{o.Log}
	case "http", "https":
		if u.Host == "" {
			return processor{}, fmt.Errorf("the payload processor %s names no host; write %s://host/path", one.name, u.Scheme)
		}
		one.sink = address{o.Client, u.String()}
	default:
		return processor{}, fmt.Errorf("the payload processor %s has the scheme %q; use http, https or logger", one.name, u.Scheme)
	}
	return one, nil
}

// queryOf is the whole query as an id: ids may hold what separates parameters elsewhere.
func queryOf(u *url.URL) string {
	if id, err := url.QueryUnescape(u.RawQuery); err == nil {
		return id
	}
	return u.RawQuery
}

func (p processor) matches(modelID, vModelID, method string) bool {
	if p.model != "" && p.model != modelID && p.model != vModelID {
		return false
	}
	return p.method == "" || p.method == strings.TrimPrefix(method, "/")
}

// body is what an address receives. Data is encoded in base64 by encoding/json.
type body struct {
	ID       string            `json:"id"`
	ModelID  string            `json:"modelid"`
	VModelID string            `json:"vModelId,omitempty"`
	Data     []byte            `json:"data"`
	Kind     Kind              `json:"kind"`
	Status   string            `json:"status,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

type address struct {
	client *http.Client
	url    string
}

func (a address) send(ctx context.Context, kind Kind, p Payload) error {
	content, err := json.Marshal(body{ID: p.ID, ModelID: p.ModelID, VModelID: p.VModelID, Data: p.Data, Kind: kind,
		Status: p.Status, Metadata: p.Metadata})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(content))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// An answer is read to its end, within reason, so that the connection is used again.
	const answer = 64 << 10
	_, _ = io.CopyN(io.Discard, resp.Body, answer)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("it answered %s", resp.Status)
	}
	return nil
}

type logger struct {
	log *slog.Logger
}

func (l logger) send(ctx context.Context, kind Kind, p Payload) error {
	args := []any{"id", p.ID, "kind", string(kind), "model", p.ModelID, "vmodel", p.VModelID, "method", p.Method, "bytes", len(p.Data)}
	if p.Status != "" {
		args = append(args, "status", p.Status)
	}
	l.log.InfoContext(ctx, "Payload", args...)
	return nil
}
