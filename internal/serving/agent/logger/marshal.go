// SPDX-License-Identifier: Apache-2.0

package logger

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Marshaller makes objects of events, here or at a service that somebody runs for it.
type Marshaller struct {
	// Format is csv, parquet, or anything else for JSON.
	Format string
	// Remote is the service's address; empty: here.
	Remote string
	// CertName and Anyone are repeated in records, as receivers of them know it.
	CertName string
	Anyone   bool

	url   *url.URL
	about About
}

// Check refuses what cannot be asked.
func (m Marshaller) Check() error {
	if m.Remote == "" {
		return nil
	}
	if u, err := url.Parse(m.Remote); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("--log-marshaller-url is no address; write http://HOST:PORT/PATH")
	}
	return nil
}

// record is an event in an object. Fields that are empty are left out.
type record struct {
	URL        *address            `json:"url,omitempty"`
	Bytes      []byte              `json:"bytes,omitempty"`
	Type       string              `json:"contentType,omitempty"`
	Kind       string              `json:"reqType,omitempty"`
	ID         string              `json:"id,omitempty"`
	Source     *address            `json:"sourceUri,omitempty"`
	Service    string              `json:"inferenceService,omitempty"`
	Namespace  string              `json:"namespace,omitempty"`
	Component  string              `json:"component,omitempty"`
	Endpoint   string              `json:"endpoint,omitempty"`
	Metadata   map[string][]string `json:"metadata,omitempty"`
	Annotation map[string]string   `json:"annotations,omitempty"`
	CertName   string              `json:"certName,omitempty"`
	Anyone     bool                `json:"tlsSkipVerify,omitempty"`
	Time       string              `json:"occurrenceTime,omitempty"`
	Status     int                 `json:"statusCode,omitempty"`
}

// address is how records have one: as its parts. A password is never among them.
type address struct {
	Scheme, Opaque string
	User           *user
	Host           string
	Path, RawPath  string
	OmitHost       bool
	ForceQuery     bool
	RawQuery       string
	Fragment       string
	RawFragment    string

	text string
}

type user struct{ Username string }

func addressOf(u *url.URL) *address {
	a := &address{
		Scheme: u.Scheme, Opaque: u.Opaque, Host: u.Host, Path: u.Path, RawPath: u.RawPath, OmitHost: u.OmitHost,
		ForceQuery: u.ForceQuery, RawQuery: u.RawQuery, Fragment: u.Fragment, RawFragment: u.RawFragment, text: u.Redacted(),
	}
	if u.User != nil {
		a.User = &user{u.User.Username()}
	}
	return a
}

func (m *Marshaller) record(e *Event) record {
	source, err := url.Parse(m.about.Source)
	if err != nil {
		source = &url.URL{Opaque: m.about.Source}
	}
	return record{
		URL: addressOf(m.url), Bytes: e.Body, Type: e.ContentType, Kind: eventType + string(e.Kind), ID: e.ID, Source: addressOf(source),
		Service: m.about.Service, Namespace: m.about.Namespace, Component: m.about.Component, Endpoint: m.about.Endpoint,
		Metadata: e.Headers, Annotation: m.about.Annotations, CertName: m.CertName, Anyone: m.Anyone,
		Time: e.Time.UTC().Format(time.RFC3339Nano), Status: e.Status,
	}
}

// marshal makes one object and says what its name ends with.
func (m *Marshaller) marshal(ctx context.Context, events []Event) (body []byte, extension string, err error) {
	records := make([]record, len(events))
	for i := range events {
		records[i] = m.record(&events[i])
	}
	switch {
	case m.Remote != "":
		return m.remote(ctx, records)
	case m.Format == "csv":
		body, err = asCSV(records)
		return body, "csv", err
	case m.Format == "parquet":
		return asParquet(records), "parquet", nil
	case len(records) == 1:
		body, err = json.Marshal(records[0])
	default:
		body, err = json.Marshal(records)
	}
	return body, "json", err
}

var columns = []string{
	"url", "bytes", "contentType", "reqType", "id", "sourceUri", "inferenceService", "namespace", "component", "endpoint",
	"metadata", "annotations", "certName", "tlsSkipVerify", "occurrenceTime", "statusCode",
}

func asCSV(records []record) ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	if err := w.Write(columns); err != nil {
		return nil, err
	}
	for i := range records {
		if err := w.Write(row(&records[i])); err != nil {
			return nil, err
		}
	}
	w.Flush()
	return out.Bytes(), w.Error()
}

// row is a record as the columns have it.
func row(r *record) []string {
	status := ""
	if r.Status != 0 {
		status = strconv.Itoa(r.Status)
	}
	return []string{
		r.URL.text, base64.StdEncoding.EncodeToString(r.Bytes), r.Type, r.Kind, r.ID, r.Source.text, r.Service, r.Namespace,
		r.Component, r.Endpoint, text(r.Metadata), text(r.Annotation), r.CertName, strconv.FormatBool(r.Anyone), r.Time, status,
	}
}

// text is a map as JSON, or nothing.
func text[V any](m map[string]V) string {
	if len(m) == 0 {
		return ""
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return "" // texts always encode
	}
	return string(raw)
}

const (
	remoteTime  = 30 * time.Second
	remoteLimit = 256 << 20
)

// isExtension tells whether a name of a file may end with it.
func isExtension(text string) bool {
	return len(text) >= 1 && len(text) <= 16 && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
}

// remote has somebody else make the object.
func (m *Marshaller) remote(ctx context.Context, records []record) (body []byte, extension string, err error) {
	raw, err := json.Marshal(records)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, remoteTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Remote, bytes.NewReader(raw))
	if err != nil {
		return nil, "", errors.New("the address of the marshaller is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", fmt.Errorf("the marshaller of the payload log cannot be reached: %w", cause(err))
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return nil, "", fmt.Errorf("the marshaller of the payload log answers with status %d; look at its log", answer.StatusCode)
	}
	body, err = io.ReadAll(io.LimitReader(answer.Body, remoteLimit+1))
	if err != nil || len(body) > remoteLimit {
		return nil, "", errors.New("the marshaller of the payload log does not answer to the end, or with too much")
	}
	extension = answer.Header.Get("X-Log-Marshal-Extension")
	if !isExtension(extension) {
		extension = "json"
	}
	return body, extension, nil
}
