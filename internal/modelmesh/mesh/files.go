// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/modelplane/modelplane/internal/modelmesh/mesh/placement"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// readFiles understands type constraints and the data plane's configuration at the start.
func (m *Mesh) readFiles() error {
	raw, err := m.set.TypeConstraints.read()
	if err != nil {
		return err
	}
	rules, err := placement.ParseConstraints(raw)
	if err != nil {
		return fmt.Errorf("MM_TYPE_CONSTRAINTS: %w", err)
	}
	m.constraints.Store(&rules)
	if raw, err = m.set.Dataplane.read(); err != nil {
		return err
	}
	plane, err := parseDataplane(raw)
	if err != nil {
		return err
	}
	m.dataplane.Store(plane)
	return nil
}

// watchFiles reads them again when they change. A file that cannot be understood leaves the last good one in force.
func (m *Mesh) watchFiles(ctx context.Context) {
	const every = 2 * time.Second
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	files := []struct {
		source
		take func([]byte) error
		last string
	}{
		{source: m.set.TypeConstraints, take: func(raw []byte) error {
			rules, err := placement.ParseConstraints(raw)
			if err == nil {
				m.constraints.Store(&rules)
				m.mover.all()
			}
			return err
		}},
		{source: m.set.Dataplane, take: func(raw []byte) error {
			plane, err := parseDataplane(raw)
			if err == nil {
				m.dataplane.Store(plane)
			}
			return err
		}},
	}
	for i := range files {
		raw, _ := files[i].read()
		files[i].last = string(raw)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for i := range files {
			f := &files[i]
			raw, err := f.read()
			if f.path == "" || err != nil || string(raw) == f.last {
				continue
			}
			f.last = string(raw)
			if err := f.take(raw); err != nil {
				m.log.Error("A file cannot be used; what was read before stays in force", "file", f.path, "err", err.Error())
				continue
			}
			m.log.Info("A file was read again", "file", f.path)
		}
	}
}

// registration is a model that the environment asks for.
type registration struct {
	ModelID string `json:"modelId"`
	Info    struct {
		Type string `json:"type"`
		Path string `json:"path"`
		Key  string `json:"key"`
	} `json:"modelInfo"`
	VModelID     string `json:"vModelId"`
	Retain       bool   `json:"retainAfterTransition"`
	EnsureLoaded bool   `json:"ensureLoaded"`
}

// autoRegister makes models known that the environment names.
func (m *Mesh) autoRegister(ctx context.Context) error {
	if !m.set.AutoRegister.set() {
		return nil
	}
	raw, err := m.set.AutoRegister.read()
	if err != nil {
		return err
	}
	var all []registration
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("MM_AUTO_REGISTER_MODELS is no JSON list of models: %w", err)
	}
	for _, r := range all {
		info := &wire.ModelInfo{Type: r.Info.Type, Path: r.Info.Path, Key: r.Info.Key}
		if r.VModelID != "" {
			_, err = api{Mesh: m}.SetVModel(ctx, &wire.SetVModelRequest{
				VModelId: r.VModelID, TargetModelId: r.ModelID, ModelInfo: info, AutoDeleteTargetModel: !r.Retain, LoadNow: r.EnsureLoaded,
			})
		} else {
			_, err = api{Mesh: m}.RegisterModel(ctx, &wire.RegisterModelRequest{ModelId: r.ModelID, ModelInfo: info, LoadNow: r.EnsureLoaded})
		}
		if err != nil {
			return fmt.Errorf("register the model %s of MM_AUTO_REGISTER_MODELS: %w", r.ModelID, err)
		}
	}
	return nil
}
