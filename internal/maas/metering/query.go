// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Query asks for usage of one tenant. From is in it, To is not; empty names are all.
type Query struct {
	Tenant                               string
	From, To                             time.Time
	Subscription, Model, KeyID, Username string
	OrganizationID, CostCenter           string
	By                                   []Dimension
	// Limit is how many rows there may be at most; ErrTooMany if there are more.
	Limit int
}

// ErrTooMany is that an answer would have more rows than were asked for.
var ErrTooMany = errors.New("there are too many rows; ask for a shorter time or for fewer dimensions")

const (
	// MaxRows of an answer.
	MaxRows = 100_000
	// defaultTime that is asked for, and the longest.
	defaultTime, maxTime = 30 * 24 * time.Hour, 400 * 24 * time.Hour
	maxParameter         = 512
)

// ParseQuery reads the parameters of GET /v1/usage: from and to (a day, or a time of RFC 3339), subscription, model, key, user,
// organization, cost_center, and by (names of dimensions with commas). Without from and to it is the last 30 days; without by,
// day, subscription and model. A parameter that is not known is an error, and so is one that comes twice: what is accepted
// is honoured. Who may see whose usage is for the caller to say, by the fields of the result.
func ParseQuery(tenant string, values url.Values, now time.Time) (Query, error) {
	q := Query{Tenant: tenant, By: []Dimension{ByDay, BySubscription, ByModel}, Limit: MaxRows}
	q.To = now.UTC().Truncate(time.Hour).Add(time.Hour)
	q.From = q.To.Add(-defaultTime).Truncate(24 * time.Hour)
	texts := map[string]*string{
		"subscription": &q.Subscription, "model": &q.Model, "key": &q.KeyID, "user": &q.Username, "organization": &q.OrganizationID, "cost_center": &q.CostCenter,
	}
	for name, list := range values {
		if len(list) != 1 || len(list[0]) > maxParameter {
			return Query{}, fmt.Errorf("parameter %.64q must come once, and be no longer than %d characters", name, maxParameter)
		}
		var err error
		switch text := texts[name]; {
		case text != nil:
			*text = list[0]
		case name == "from":
			q.From, err = parseTime(list[0])
		case name == "to":
			q.To, err = parseTime(list[0])
		case name == "by":
			q.By, err = parseBy(list[0])
		case name != "format":
			err = errors.New("there is no such parameter")
		}
		if err != nil {
			return Query{}, fmt.Errorf("parameter %.64q: %w", name, err)
		}
	}
	if values.Has("to") && !values.Has("from") {
		q.From = q.To.Add(-defaultTime)
	}
	if !q.From.Before(q.To) || q.To.Sub(q.From) > maxTime {
		return Query{}, errors.New("from must be before to, and no more than 400 days")
	}
	return q, nil
}

func parseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		t, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return time.Time{}, errors.New("it is a day such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z")
	}
	if t = t.UTC(); t.Year() < 2000 || t.Year() > 9000 {
		return time.Time{}, errors.New("the year is out of range")
	}
	if !t.Equal(t.Truncate(time.Hour)) {
		return time.Time{}, errors.New("usage is known by the hour; name a full one")
	}
	return t, nil
}

func parseBy(text string) ([]Dimension, error) {
	var out []Dimension
	for name := range strings.SplitSeq(text, ",") {
		d := Dimension(strings.TrimSpace(name))
		switch {
		case !slices.Contains(Dimensions, d):
			return nil, fmt.Errorf("there is no dimension %.32q; there are %v", name, Dimensions)
		case slices.Contains(out, d):
			return nil, fmt.Errorf("%s comes twice", d)
		}
		out = append(out, d)
	}
	if slices.Contains(out, ByHour) && slices.Contains(out, ByDay) {
		return nil, errors.New("hour and day exclude each other")
	}
	slices.SortFunc(out, func(a, b Dimension) int { return slices.Index(Dimensions, a) - slices.Index(Dimensions, b) })
	return out, nil
}

// matches is what a database does with a query, row by row.
func (q Query) matches(k Key) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	return k.Tenant == q.Tenant && !k.Hour.Before(q.From) && k.Hour.Before(q.To) && is(q.Subscription, k.Subscription) && is(q.Model, k.Model) &&
		is(q.KeyID, k.KeyID) && is(q.Username, k.Username) && is(q.OrganizationID, k.OrganizationID) && is(q.CostCenter, k.CostCenter)
}

// Select is what a query finds in rows.
func (q Query) Select(rows []Row) ([]Row, error) {
	var found []Row
	for _, r := range rows {
		if q.matches(r.Key) {
			found = append(found, r)
		}
	}
	out := Aggregate(found, q.By)
	if q.Limit > 0 && len(out) > q.Limit {
		return nil, ErrTooMany
	}
	return out, nil
}

func (d Dimension) of(k Key) string {
	switch d {
	case ByHour:
		return k.Hour.UTC().Format(time.RFC3339)
	case ByDay:
		return k.Hour.UTC().Format(time.DateOnly)
	case ByTenant:
		return k.Tenant
	case BySubscription:
		return k.Subscription
	case ByModel:
		return k.Model
	case ByKey:
		return k.KeyID
	case ByUser:
		return k.Username
	case ByOrganization:
		return k.OrganizationID
	case ByCostCenter:
		return k.CostCenter
	}
	return ""
}

var columns = []string{"requests", "failed_requests", "estimated_requests", "prompt_tokens", "completion_tokens", "total_tokens"}

func (s Sums) values() []int64 {
	return []int64{s.Requests, s.Failed, s.Estimated, s.Prompt, s.Completion, s.Total}
}

// WriteCSV writes a table with a head. Names that a spreadsheet would take for a formula get an apostrophe before them.
func WriteCSV(w io.Writer, by []Dimension, rows []Row) error {
	out := csv.NewWriter(w)
	line := make([]string, 0, len(by)+len(columns))
	for _, d := range by {
		line = append(line, string(d))
	}
	if err := out.Write(append(line, columns...)); err != nil {
		return err
	}
	for _, r := range rows {
		line = line[:0]
		for _, d := range by {
			text := d.of(r.Key)
			if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
				text = "'" + text
			}
			line = append(line, text)
		}
		for _, n := range r.values() {
			line = append(line, strconv.FormatInt(n, 10))
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// Answer is the body of GET /v1/usage.
type Answer struct {
	Object string           `json:"object"`
	From   time.Time        `json:"from"`
	To     time.Time        `json:"to"`
	Data   []map[string]any `json:"data"`
	Totals map[string]int64 `json:"totals"`
}

// NewAnswer puts rows into it.
func NewAnswer(q Query, rows []Row) Answer {
	a := Answer{Object: "list", From: q.From, To: q.To, Data: make([]map[string]any, 0, len(rows)), Totals: map[string]int64{}}
	var all Sums
	for _, r := range rows {
		item := make(map[string]any, len(q.By)+len(columns))
		for _, d := range q.By {
			item[string(d)] = d.of(r.Key)
		}
		for i, n := range r.values() {
			item[columns[i]] = n
		}
		a.Data = append(a.Data, item)
		all.add(r.Sums)
	}
	for i, n := range all.values() {
		a.Totals[columns[i]] = n
	}
	return a
}
