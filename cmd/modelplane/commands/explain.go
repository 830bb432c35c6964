// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/cli"
)

// newKnown is what explain knows of every room.
func newKnown() (*cli.Known, error) {
	all, err := domains.All()
	if err != nil {
		return nil, err
	}
	k := &cli.Known{About: domains.About()}
	if k.Scheme, err = domains.NewScheme(); err != nil {
		return nil, err
	}
	for _, d := range all {
		for _, c := range d.Controllers {
			if c.Spec().HomeName == "" { // nobody asks after an object of the installation's own
				k.Controllers = append(k.Controllers, c)
			}
		}
	}
	return k, nil
}
