// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"bytes"
	"encoding/json"

	"github.com/modelplane/modelplane/internal/maas/payload/sse"
)

// forAzure takes out of answers what Azure adds to OpenAI's API: what its content filter found.
func forAzure() *Translation {
	return &Translation{Answer: unfiltered, Stream: func() Streamer { return azureStream{} }}
}

type azureStream struct{}

func (azureStream) Event(e sse.Event) ([]sse.Event, error) {
	if bytes.Equal(bytes.TrimSpace(e.Data), done) {
		return []sse.Event{e}, nil
	}
	data, err := unfiltered(e.Data)
	return []sse.Event{{Name: e.Name, Data: data}}, err
}

func (azureStream) End() []sse.Event { return nil }

// unfiltered leaves what it cannot read, or what has nothing to take out, as it is.
func unfiltered(body []byte) ([]byte, error) {
	if !bytes.Contains(body, []byte("_filter_result")) {
		return body, nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return body, nil //nolint:nilerr // it is not ours to judge
	}
	delete(fields, "prompt_filter_results")
	var choices []map[string]json.RawMessage
	if json.Unmarshal(fields["choices"], &choices) == nil {
		for _, choice := range choices {
			delete(choice, "content_filter_results")
			delete(choice, "content_filter_result")
			delete(choice, "content_filter_offsets")
		}
		text, err := encode(choices)
		if err != nil {
			return nil, err
		}
		fields["choices"] = text
	}
	return encode(fields)
}
