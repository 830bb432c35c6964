// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/modelplane/modelplane/internal/manager"

// domains is the one list of the rooms that the manager can serve.
func domains() []manager.Domain {
	return []manager.Domain{
		{Name: "serving"},
		{Name: "modelmesh"},
		{Name: "modelregistry"},
		{Name: "maas"},
		{Name: "mlflow"},
	}
}
