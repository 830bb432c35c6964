// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
)

// newPlanner knows the kinds and controllers of every room.
func newPlanner() (*cli.Planner, error) {
	all, err := domains.All()
	if err != nil {
		return nil, err
	}
	p := &cli.Planner{}
	if p.Scheme, err = domains.NewScheme(); err != nil {
		return nil, err
	}
	if p.Schemas, err = admission.Embedded(); err != nil {
		return nil, err
	}
	for _, d := range all {
		p.Kinds = append(p.Kinds, d.Admission...)
		p.Controllers = append(p.Controllers, d.Controllers...)
	}
	return p, nil
}
