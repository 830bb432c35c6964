// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"text/tabwriter"
	"time"
)

// Health is what Status found out about one process.
type Health struct {
	Name     string
	PID      int
	Memory   int64
	Address  string
	Healthy  bool
	Describe string
}

// Status looks at every process of the cluster. Processes that were never started do not appear.
func (c *Cluster) Status(ctx context.Context) ([]Health, error) {
	if !exists(c.Dir) {
		return nil, c.absent()
	}
	st, err := loadState(c.Dir)
	if err != nil {
		return nil, err
	}
	p := pki{dir: c.pkiDir()}
	specs := c.specs(p, st)
	var all []Health
	for _, name := range processNames {
		h, err := c.health(ctx, p, specs[name])
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the cluster in %s is stopped; `modelplane-local up` resumes it", c.Dir)
	}
	if st.Node != nil {
		all = append(all, c.nodeHealth(ctx, p, st))
	}
	return all, nil
}

func (c *Cluster) health(ctx context.Context, p pki, s spec) (Health, error) {
	h := Health{Name: s.name, Address: s.probe.url}
	rec, err := readRecord(c.Dir, s.name)
	if err != nil {
		return h, err
	}
	if !rec.alive() {
		h.Describe = "not running; `modelplane-local up` starts it again"
		return h, nil
	}
	h.PID, h.Memory = rec.PID, ownBytes(rec.PID)
	client, err := s.probe.client(p)
	if err != nil {
		return h, err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := s.probe.check(ctx, client); err != nil {
		h.Describe = "not ready: " + err.Error()
		return h, nil
	}
	h.Healthy, h.Describe = true, "ready"
	return h, nil
}

// nodeHealth is what the API server knows of the node.
func (c *Cluster) nodeHealth(ctx context.Context, p pki, st *state) Health {
	h := Health{Name: "node"}
	b := &bringUp{Cluster: c, pki: p, state: st}
	client, err := b.adminClient()
	if err != nil {
		h.Describe = "not ready: " + err.Error()
		return h
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	ready, why := b.nodeReady(ctx, client)
	if !ready {
		h.Describe = "not ready: " + why
		return h
	}
	h.Healthy, h.Describe = true, "ready"
	return h
}

// PrintStatus writes the table and tells whether everything in it is healthy.
func (c *Cluster) PrintStatus(all []Health) (bool, error) {
	w := tabwriter.NewWriter(c.Out, 0, 4, 3, ' ', 0)
	fmt.Fprintln(w, "COMPONENT\tPID\tMEMORY\tHEALTH")
	healthy, total := true, int64(0)
	for _, h := range all {
		pid, memory := "-", "-"
		if h.PID > 0 {
			pid, memory = strconv.Itoa(h.PID), fmt.Sprintf("%d MiB", h.Memory>>20)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", h.Name, pid, memory, h.Describe)
		total += h.Memory
		healthy = healthy && h.Healthy
	}
	fmt.Fprintf(w, "together\t\t%d MiB\t\n", total>>20)
	return healthy, w.Flush()
}
