// SPDX-License-Identifier: Apache-2.0

// Package metering knows who used how many tokens of what. It shows that as metrics, and as rows of a database, one for each
// hour in which somebody used something, which are written in batches and can be summed up for a bill. It does not decide
// about requests, and never makes one wait for a database.
package metering

import (
	"cmp"
	"slices"
	"time"
)

// Record is one request that was answered.
type Record struct {
	Time                       time.Time
	Tenant                     string
	Subscription, Model        string // namespace/name
	KeyID, Username            string // KeyID is empty for requests with a token
	OrganizationID, CostCenter string
	Status                     int
	// Estimated tells that the answer did not say how many tokens it has.
	Estimated                 bool
	Prompt, Completion, Total int64
}

// Key is whose use a row is, and in which hour.
type Key struct {
	// Hour in UTC; a row that sums up several has the first.
	Hour                       time.Time
	Tenant                     string
	Subscription, Model        string
	KeyID, Username            string
	OrganizationID, CostCenter string
}

// Sums of requests.
type Sums struct {
	// Requests, of which Failed had no good answer and Estimated did not say what they used.
	Requests, Failed, Estimated int64
	Prompt, Completion, Total   int64
}

func (s *Sums) add(o Sums) {
	s.Requests += o.Requests
	s.Failed += o.Failed
	s.Estimated += o.Estimated
	s.Prompt += o.Prompt
	s.Completion += o.Completion
	s.Total += o.Total
}

// Row is what was used in an hour.
type Row struct {
	Key
	Sums
}

// bounded is a number of tokens that one request can have: an answer that says more must not make a sum overflow.
func bounded(n int64) int64 { return min(max(n, 0), 1<<40) }

// row of one request.
func (r Record) row() Row {
	out := Row{
		Key{r.Time.UTC().Truncate(time.Hour), r.Tenant, r.Subscription, r.Model, r.KeyID, r.Username, r.OrganizationID, r.CostCenter},
		Sums{Requests: 1, Prompt: bounded(r.Prompt), Completion: bounded(r.Completion), Total: bounded(r.Total)},
	}
	if r.Status < 200 || r.Status > 399 {
		out.Failed = 1
	}
	if r.Estimated {
		out.Estimated = 1
	}
	return out
}

// Dimension by which rows are summed up.
type Dimension string

// Every dimension. Hour and Day are of time; a row has at most one of them.
const (
	ByHour         Dimension = "hour"
	ByDay          Dimension = "day"
	ByTenant       Dimension = "tenant"
	BySubscription Dimension = "subscription"
	ByModel        Dimension = "model"
	ByKey          Dimension = "key"
	ByUser         Dimension = "user"
	ByOrganization Dimension = "organization"
	ByCostCenter   Dimension = "cost_center"
)

// Dimensions in the order of columns.
var Dimensions = []Dimension{ByHour, ByDay, ByTenant, BySubscription, ByModel, ByKey, ByUser, ByOrganization, ByCostCenter}

// hourly tells rows apart as they are kept.
var hourly = []Dimension{ByHour, ByTenant, BySubscription, ByModel, ByKey, ByUser, ByOrganization, ByCostCenter}

// by keeps of a key only what rows are told apart by.
func (k Key) by(dimensions []Dimension) Key {
	var out Key
	for _, d := range dimensions {
		switch d {
		case ByHour:
			out.Hour = k.Hour
		case ByDay:
			out.Hour = k.Hour.Truncate(24 * time.Hour)
		case ByTenant:
			out.Tenant = k.Tenant
		case BySubscription:
			out.Subscription = k.Subscription
		case ByModel:
			out.Model = k.Model
		case ByKey:
			out.KeyID = k.KeyID
		case ByUser:
			out.Username = k.Username
		case ByOrganization:
			out.OrganizationID = k.OrganizationID
		case ByCostCenter:
			out.CostCenter = k.CostCenter
		}
	}
	return out
}

func (k Key) compare(o Key) int {
	return cmp.Or(k.Hour.Compare(o.Hour), cmp.Compare(k.Tenant, o.Tenant), cmp.Compare(k.Subscription, o.Subscription), cmp.Compare(k.Model, o.Model),
		cmp.Compare(k.KeyID, o.KeyID), cmp.Compare(k.Username, o.Username), cmp.Compare(k.OrganizationID, o.OrganizationID), cmp.Compare(k.CostCenter, o.CostCenter))
}

// Aggregate sums rows up, in order.
func Aggregate(rows []Row, by []Dimension) []Row {
	sums := map[Key]*Row{}
	for _, r := range rows {
		k := r.Key.by(by)
		if sums[k] == nil {
			sums[k] = &Row{Key: k}
		}
		sums[k].add(r.Sums)
	}
	out := make([]Row, 0, len(sums))
	for _, r := range sums {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Row) int { return a.Key.compare(b.Key) })
	return out
}
