// SPDX-License-Identifier: Apache-2.0

package domains

import (
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/manager"
)

// NewPlanner plans the kinds of every room.
func NewPlanner() (*cli.Planner, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	p := &cli.Planner{}
	if p.Scheme, err = NewScheme(); err != nil {
		return nil, err
	}
	if p.Schemas, err = admission.Embedded(); err != nil {
		return nil, err
	}
	p.Kinds = manager.Kinds(all)
	for _, d := range all {
		p.Controllers = append(p.Controllers, d.Controllers...)
	}
	return p, nil
}
