// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of a document, beside its length: a few lines can stand for a great deal.
const (
	maxNodes = 2_000_000
	// maxRepeated is how much of it may stand for something that is written elsewhere.
	maxRepeated = 100_000
	maxDepth    = 100
)

// decode reads YAML into what JSON has: objects, lists, texts, numbers, true, false and null. Texts stay what somebody has
// written: the language no, the version 1.10 and a date are not turned into something else.
func decode(data []byte) (any, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	err := d.Decode(&document)
	if errors.Is(err, io.EOF) {
		return map[string]any{}, nil
	}
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document in the file")
	}
	c := converter{left: maxNodes, repeated: maxRepeated}
	return c.value(&document, 0)
}

// toJSON is for those who want to have it in a struct.
func toJSON(data []byte) ([]byte, error) {
	value, err := decode(data)
	if err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

type converter struct {
	left, repeated int
	// within counts the aliases around what is being converted.
	within int
}

func (c *converter) value(n *yaml.Node, depth int) (any, error) {
	if c.within > 0 {
		c.repeated--
	}
	if c.left--; c.left < 0 || c.repeated < 0 || depth > maxDepth {
		return nil, fmt.Errorf("line %d: there is too much in the file, or it is nested too deep", n.Line)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return c.value(n.Content[0], depth+1)
	case yaml.AliasNode:
		c.within++
		defer func() { c.within-- }()
		return c.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			value, err := c.value(item, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, value)
		}
		return out, nil
	case yaml.MappingNode:
		return c.object(n, depth)
	case yaml.ScalarNode:
		return scalar(n), nil
	}
	return nil, fmt.Errorf("line %d: this cannot be read", n.Line)
}

func (c *converter) object(n *yaml.Node, depth int) (any, error) {
	out, merged := map[string]any{}, map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, inner := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: a key must be text", name.Line)
		}
		value, err := c.value(inner, depth+1)
		if err != nil {
			return nil, err
		}
		if name.Tag == "!!merge" {
			from, ok := value.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("line %d: only an object can be merged", name.Line)
			}
			merged = from
			continue
		}
		if _, twice := out[name.Value]; twice {
			return nil, fmt.Errorf("line %d: the key %q is there twice", name.Line, name.Value)
		}
		out[name.Value] = value
	}
	for name, value := range merged {
		if _, ok := out[name]; !ok {
			out[name] = value
		}
	}
	return out, nil
}

func scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		return number(n.Value)
	}
	return n.Value
}

// number keeps the spelling if JSON has it as well.
func number(s string) any {
	if json.Valid([]byte(s)) {
		return json.Number(s)
	}
	if i, err := strconv.ParseInt(s, 0, 64); err == nil {
		return json.Number(strconv.FormatInt(i, 10))
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
		return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
	}
	return s
}
