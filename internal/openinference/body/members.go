// SPDX-License-Identifier: Apache-2.0

package body

import (
	"encoding/json"

	"github.com/modelplane/modelplane/internal/openinference"
)

// Members are those of an object that names inputs of a model directly, and parameters.
type Members struct {
	// Members are texts in JSON.
	Members    map[string][]byte
	Parameters Parameters
}

// DecodeMembers reads such an object. What is in "parameters" may name inputs, too.
func DecodeMembers(text []byte) (*Members, error) {
	if !json.Valid(text) {
		return nil, openinference.Invalidf("the request is no JSON")
	}
	if err := counted(text, "the request"); err != nil {
		return nil, err
	}
	out := &Members{Members: map[string][]byte{}}
	if err := out.take(text); err != nil {
		return nil, err
	}
	inner := out.Members["parameters"]
	delete(out.Members, "parameters")
	if inner == nil {
		return out, nil
	}
	if err := counted(inner, "a set of parameters"); err != nil {
		return nil, err
	}
	if err := out.take(inner); err != nil {
		return nil, err
	}
	return out, nil
}

func (m *Members) take(text []byte) error {
	var all map[string]Part
	if json.Unmarshal(text, &all) != nil {
		return openinference.Invalidf("the request, and parameters in it, must be JSON objects")
	}
	for name, value := range all {
		m.Members[name] = value
	}
	return nil
}

// IntoParameters makes parameters of the members that are left.
func (m *Members) IntoParameters() error {
	all := map[string]json.RawMessage{}
	for name, value := range m.Members {
		all[name] = value
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	m.Members = nil
	return m.Parameters.UnmarshalJSON(text)
}
