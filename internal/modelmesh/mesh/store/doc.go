// SPDX-License-Identifier: Apache-2.0

// Package store keeps what the processes of a mesh know together: models, virtual models, instances, dynamic settings and
// who leads, all in etcd, under keys and in JSON that other programs read too. A Table mirrors one prefix in memory and goes
// on where it stopped, also after a compaction; writes compare the revision that was read, so that nobody overwrites what
// he has not seen. It decides nothing: what a record should say is the mesh's business.
package store
