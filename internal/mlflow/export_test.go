// SPDX-License-Identifier: Apache-2.0

package mlflow

import "time"

// Tested is a room that brings databases to another version and whose clock is
// ahead, so that pauses are over sooner.
func (r *Domain) Tested(version string, ahead time.Duration) *Domain {
	r.version, r.now = version, func() time.Time { return time.Now().Add(ahead) }
	return r
}
