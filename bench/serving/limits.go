// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// The promises. Counts hold for any number of services and on any machine;
// memory and ratio for the size they are given for, on two cores.
const (
	mostWrites        = 8.0 // 7, and one where a status is written before the pods are ready
	mostRequests      = 9.0 // these, and what a pod's credentials cost
	mostTouchRequests = 4.5 // 4; others' changes may cost a retry
	mostRatio         = 2.0
)

// memoryLimits are the most MiB at a number of services.
var memoryLimits = []struct {
	services int
	mib      float64
}{{1000, 150}, {5000, 400}}

// broken lists the promises about counts that the report does not keep.
func (r *report) broken() []string {
	var out []string
	limit := func(what string, got, most float64, of phase) {
		if got > most {
			out = append(out, fmt.Sprintf("%s: %.2f, want at most %.1f\n%s", what, got, most, of.table()))
		}
	}
	limit("writes per service", r.Make.Each.Writes, mostWrites, r.Make)
	limit("requests per service", r.Make.Each.Requests, mostRequests, r.Make)
	limit("writes while idle", float64(r.Idle.Writes), 0, r.Idle)
	limit("writes after a restart", float64(r.Restart.Writes), 0, r.Restart)
	for _, c := range r.Touch {
		limit("requests per service whose "+c.Field+" was changed", c.Each.Requests, mostTouchRequests, c.phase)
	}
	return out
}

// slow lists the promises about memory and time that the report does not keep.
func (r *report) slow() []string {
	var out []string
	for _, l := range memoryLimits {
		peak := max(r.Usage.PeakRSSMiB, r.RestartUsage.PeakRSSMiB)
		if r.Services <= l.services {
			if peak > l.mib {
				out = append(out, fmt.Sprintf("peak RSS: %.0f MiB, want at most %.0f for %d services", peak, l.mib, l.services))
			}
			break
		}
	}
	if r.Floor != nil && r.Ratio > mostRatio {
		out = append(out, fmt.Sprintf("all ready took %.2f times the floor, want at most %.0f times", r.Ratio, mostRatio))
	}
	return out
}
