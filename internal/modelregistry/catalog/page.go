// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
	"github.com/modelplane/modelplane/internal/modelregistry/server/filter"
)

// Bounds of what a client may ask for.
const (
	defaultPage = 10
	maxPage     = 1000
	maxQuery    = 16 << 10
	maxToken    = 4096
	maxValues   = 100
	// maxKey is how much of a text decides about the order; the rest would not fit into a token.
	maxKey = 256
)

// refusal is what a client did wrong.
type refusal struct {
	code    int
	message string
}

func (r *refusal) Error() string { return r.message }

func bad(format string, args ...any) error {
	return &refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

func missing(format string, args ...any) error {
	return &refusal{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

// key is where an item stands in a list. Items without a value come last, whatever the direction.
type key struct {
	Missing bool    `json:"m,omitempty"`
	Number  float64 `json:"f,omitempty"`
	Text    string  `json:"t,omitempty"`
	// ID decides between items of the same value. Sources and labels have texts for it.
	ID string `json:"i"`
}

func (k key) compare(other key, down bool) int {
	if k.Missing != other.Missing {
		if k.Missing {
			return 1
		}
		return -1
	}
	by := cmp.Or(cmp.Compare(k.Number, other.Number), strings.Compare(k.Text, other.Text))
	if down {
		by = -by
	}
	return cmp.Or(by, cmp.Compare(len(k.ID), len(other.ID)), strings.Compare(k.ID, other.ID))
}

func textKey(s, id string) key {
	if len(s) > maxKey {
		s = strings.ToValidUTF8(s[:maxKey], "")
	}
	return key{Text: s, ID: id}
}

func numberKey(f float64, ok bool, id string) key {
	if !ok || math.IsNaN(f) {
		return key{Missing: true, ID: id}
	}
	return key{Number: f, ID: id}
}

// listing is what a client says about a list.
type listing struct {
	size  int
	order string
	down  bool
	after *key
}

// token is where the next page begins. It names an item and not a number of items, so that what comes and goes in between
// neither repeats nor hides others.
type token struct {
	Order string `json:"o"`
	Down  bool   `json:"d,omitempty"`
	After key    `json:"a"`
}

func readListing(q url.Values, order string) (listing, error) {
	out := listing{size: defaultPage, order: order}
	if given := q.Get("orderBy"); given != "" {
		out.order = given
	}
	if s := q.Get("pageSize"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return out, bad("pageSize must be a number from 1 on; more than %d are never sent at once.", maxPage)
		}
		out.size = min(n, maxPage)
	}
	switch q.Get("sortOrder") {
	case "", "ASC":
	case "DESC":
		out.down = true
	default:
		return out, bad("sortOrder must be ASC or DESC.")
	}
	var err error
	if s := q.Get("nextPageToken"); s != "" {
		err = out.continued(s)
	}
	return out, err
}

func (l *listing) continued(s string) error {
	var t token
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
	if len(s) > maxToken || err != nil || json.Unmarshal(data, &t) != nil || t.After.ID == "" {
		return bad("nextPageToken is none that a list has given; begin with the first page.")
	}
	if t.Order != l.order || t.Down != l.down {
		return bad("nextPageToken is of a list in another order; begin with the first page.")
	}
	l.after = &t.After
	return nil
}

// list is a page on the wire.
type list[T any] struct {
	Items         []T    `json:"items"`
	NextPageToken string `json:"nextPageToken"`
	PageSize      int    `json:"pageSize"`
	Size          int    `json:"size"`
}

// paged sorts and cuts.
func paged[T any](l listing, items []T, keyOf func(T) key) list[T] {
	type keyed struct {
		key
		item T
	}
	all := make([]keyed, 0, len(items))
	for _, item := range items {
		k := keyed{keyOf(item), item}
		if l.after == nil || k.compare(*l.after, l.down) > 0 {
			all = append(all, k)
		}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return a.compare(b.key, l.down) })
	out := list[T]{Items: []T{}, PageSize: l.size}
	if len(all) > l.size {
		all = all[:l.size]
		data, err := json.Marshal(token{Order: l.order, Down: l.down, After: all[l.size-1].key})
		if err == nil {
			out.NextPageToken = base64.RawURLEncoding.EncodeToString(data)
		}
	}
	for _, k := range all {
		out.Items = append(out.Items, k.item)
	}
	out.Size = len(out.Items)
	return out
}

// ordering finds the key of an entry for an orderBy: a field, or a property with its type. For a property of artifacts the
// best artifact counts.
func (l listing) ordering() (func(*entry.Entry) key, error) {
	id := func(e *entry.Entry) string { return strconv.FormatInt(e.ID, 10) }
	switch strings.ToUpper(l.order) {
	case "NAME":
		return func(e *entry.Entry) key {
			k := textKey(e.Name, id(e))
			k.Missing = e.Name == ""
			return k
		}, nil
	case "ID":
		return func(e *entry.Entry) key { return key{Number: float64(e.ID), ID: id(e)} }, nil
	case "CREATE_TIME":
		return func(e *entry.Entry) key { return numberKey(float64(e.Created), e.Created > 0, id(e)) }, nil
	case "LAST_UPDATE_TIME":
		return func(e *entry.Entry) key { return numberKey(float64(e.Updated), e.Updated > 0, id(e)) }, nil
	case "ACCURACY":
		return func(e *entry.Entry) key { return bestPart(e, "overall_average", filter.Double, l.down) }, nil
	}
	name, of, err := l.property()
	if err != nil {
		return nil, err
	}
	if part, ok := strings.CutPrefix(name, ofParts); ok {
		return func(e *entry.Entry) key { return bestPart(e, part, of, l.down) }, nil
	}
	return func(e *entry.Entry) key { return propertyKey(e, e, name, of) }, nil
}

func (l listing) property() (string, filter.Type, error) {
	at := strings.LastIndex(l.order, ".")
	if at <= 0 {
		return "", "", bad("orderBy must be ID, NAME, CREATE_TIME, LAST_UPDATE_TIME, ACCURACY, or a property with its type such as provider.string_value.")
	}
	name, of := l.order[:at], filter.Type(l.order[at+1:])
	if !slices.Contains([]filter.Type{filter.String, filter.Int, filter.Double}, of) {
		return "", "", bad("orderBy ends in %q; properties are ordered by string_value, int_value or double_value.", of)
	}
	return strings.ReplaceAll(name, "`", ""), of, nil
}

// propertyKey is that of an entry by the property of it or of a part.
func propertyKey(e, of *entry.Entry, name string, t filter.Type) key {
	id := strconv.FormatInt(e.ID, 10)
	for _, v := range of.Values(filter.Property{Name: name}).All {
		if n, ok := v.Number(); ok && t != filter.String {
			return numberKey(n, true, id)
		}
		if v.Type == filter.String && t == filter.String {
			return textKey(v.String, id)
		}
	}
	return key{Missing: true, ID: id}
}

func bestPart(e *entry.Entry, name string, t filter.Type, down bool) key {
	best := key{Missing: true, ID: strconv.FormatInt(e.ID, 10)}
	for _, part := range e.Parts {
		if k := propertyKey(e, part, name, t); k.compare(best, down) < 0 {
			best = k
		}
	}
	return best
}
