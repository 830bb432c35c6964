// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// PathShow is where people ask for usage, and PathAdd where processes of the platform tell of it.
const (
	PathShow = "/v1/usage"
	PathAdd  = "/internal/v1/usage"
)

// Bounds of a batch.
const (
	MaxBatch     = 16 << 20
	maxBatchRows = 50_000
	maxBatchName = 64
)

// message is a batch on its way.
type message struct {
	Batch string       `json:"batch"`
	Rows  []messageRow `json:"rows"`
}

type messageRow struct {
	Hour           time.Time `json:"hour"`
	Tenant         string    `json:"tenant"`
	Subscription   string    `json:"subscription"`
	Model          string    `json:"model"`
	KeyID          string    `json:"keyId,omitempty"`
	Username       string    `json:"username"`
	OrganizationID string    `json:"organizationId,omitempty"`
	CostCenter     string    `json:"costCenter,omitempty"`
	Requests       int64     `json:"requests"`
	Failed         int64     `json:"failedRequests"`
	Estimated      int64     `json:"estimatedRequests"`
	Prompt         int64     `json:"promptTokens"`
	Completion     int64     `json:"completionTokens"`
	Total          int64     `json:"totalTokens"`
}

func (m messageRow) row() Row {
	return Row{
		Key{m.Hour.UTC(), m.Tenant, m.Subscription, m.Model, m.KeyID, m.Username, m.OrganizationID, m.CostCenter},
		Sums{m.Requests, m.Failed, m.Estimated, m.Prompt, m.Completion, m.Total},
	}
}

// decode reads a batch that can be meant.
func decode(text []byte, tenant string) (string, []Row, error) {
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return "", nil, errors.New("the body is no batch of usage")
	}
	if m.Batch == "" || len(m.Batch) > maxBatchName || len(m.Rows) > maxBatchRows {
		return "", nil, fmt.Errorf("a batch has a name of at most %d characters, and at most %d rows", maxBatchName, maxBatchRows)
	}
	rows := make([]Row, len(m.Rows))
	for i, r := range m.Rows {
		rows[i] = r.row()
		k := rows[i].Key
		if k.Tenant != tenant {
			return "", nil, errors.New("a row is of another tenant")
		}
		if !k.Hour.Equal(k.Hour.Truncate(time.Hour)) || k.Hour.Year() < 2000 || k.Hour.Year() > 9000 {
			return "", nil, errors.New("a row is of no full hour")
		}
		for _, n := range rows[i].values() {
			if n < 0 || n > 1<<53 {
				return "", nil, errors.New("a row has a number that is out of range")
			}
		}
	}
	return m.Batch, rows, nil
}

// Receive takes batches of one tenant for PathAdd. Who may tell of usage is for the server around it to check.
func Receive(to Writer, tenant string, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxBatch))
		if err != nil {
			tell(w, http.StatusRequestEntityTooLarge, "the batch cannot be read, or is too large")
			return
		}
		batch, rows, err := decode(text, tenant)
		if err != nil {
			tell(w, http.StatusBadRequest, err.Error())
			return
		}
		if err := to.Add(req.Context(), batch, rows); err != nil {
			log.Warn("Usage cannot be kept", "rows", len(rows), "err", err.Error())
			tell(w, http.StatusServiceUnavailable, "usage cannot be kept now; try again")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// Remote hands batches to a server that receives them.
type Remote struct {
	client *http.Client
	url    string
}

// NewRemote tells the server at the address of its internal routes, with a client that shows who we are.
func NewRemote(client *http.Client, address string) *Remote {
	return &Remote{client, strings.TrimSuffix(address, "/") + PathAdd}
}

// Add is of Writer.
func (r *Remote) Add(ctx context.Context, batch string, rows []Row) error {
	m := message{Batch: batch, Rows: make([]messageRow, len(rows))}
	for i, row := range rows {
		k, s := row.Key, row.Sums
		m.Rows[i] = messageRow{k.Hour, k.Tenant, k.Subscription, k.Model, k.KeyID, k.Username, k.OrganizationID, k.CostCenter, s.Requests, s.Failed, s.Estimated, s.Prompt, s.Completion, s.Total}
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return fmt.Errorf("tell of usage: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection can be used again
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("tell of usage: the server answers with status %d", resp.StatusCode)
	}
	return nil
}

// Viewer is who asks for usage. Administrators see everybody's, others their own.
type Viewer struct {
	Username string
	Admin    bool
}

// ErrNotYours is that somebody asks for the usage of others.
var ErrNotYours = errors.New("only administrators see the usage of others")

// For narrows a query to what somebody may see.
func (q Query) For(who Viewer) (Query, error) {
	switch {
	case who.Admin:
		return q, nil
	case who.Username == "" || q.Username != "" && q.Username != who.Username:
		return Query{}, ErrNotYours
	}
	q.Username = who.Username
	return q, nil
}

// Show answers PathShow with JSON, or with a table (format=csv, or Accept: text/csv). Who asks is for the server around it to say.
func Show(rows Rows, tenant string, who func(*http.Request) (Viewer, error), now func() time.Time, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		viewer, err := who(req)
		if err != nil {
			tell(w, http.StatusUnauthorized, "it is not known who asks")
			return
		}
		values := req.URL.Query()
		table := values.Get("format") == "csv" || values.Get("format") == "" && strings.HasPrefix(req.Header.Get("Accept"), "text/csv")
		if f := values.Get("format"); f != "" && f != "csv" && f != "json" {
			tell(w, http.StatusBadRequest, "the format is json or csv")
			return
		}
		q, err := ParseQuery(tenant, values, now())
		if err != nil {
			tell(w, http.StatusBadRequest, err.Error())
			return
		}
		if q, err = q.For(viewer); err != nil {
			tell(w, http.StatusForbidden, err.Error())
			return
		}
		found, err := rows.Sum(req.Context(), q)
		switch {
		case errors.Is(err, ErrTooMany):
			tell(w, http.StatusBadRequest, err.Error())
			return
		case err != nil:
			log.Warn("Usage cannot be read", "err", err.Error())
			tell(w, http.StatusServiceUnavailable, "usage cannot be read now; try again")
			return
		}
		write(w, q, found, table, log)
	})
}

func write(w http.ResponseWriter, q Query, rows []Row, table bool, log *slog.Logger) {
	w.Header().Set("Cache-Control", "no-store")
	var err error
	if table {
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		w.Header().Set("Content-Disposition", `attachment; filename="usage.csv"`)
		err = WriteCSV(w, q.By, rows)
	} else {
		w.Header().Set("Content-Type", "application/json")
		err = json.NewEncoder(w).Encode(NewAnswer(q, rows))
	}
	if err != nil {
		log.Debug("The client went away", "err", err.Error())
	}
}

// tell answers with an error in the shape of the API.
func tell(w http.ResponseWriter, status int, message string) {
	kind := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		kind = "server_error"
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": message, "type": kind}}) // the client may be gone
}
