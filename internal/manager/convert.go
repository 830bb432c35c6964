// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// converter hands the objects of a request one by one to the handler that knows how to convert, so that a list takes the
// memory of its text and of one object.
type converter struct {
	one    http.Handler
	budget *budget
}

// handler bounds the requests as a whole; every object is paid for when its turn comes.
func (c converter) handler() http.Handler {
	return c.budget.bounded(maxConversion, textSize, c.answer)
}

// textSize is the memory for the text of the objects while they are found one after the other, and for that of the answer.
func textSize(raw []byte) int64 { return 4 * int64(len(raw)) }

// question is a ConversionReview without its objects.
type question struct {
	metav1.TypeMeta `json:",inline"`
	Request         *struct {
		UID               json.RawMessage `json:"uid"`
		DesiredAPIVersion string          `json:"desiredAPIVersion"`
	} `json:"request"`
}

func (c converter) answer(w http.ResponseWriter, req *http.Request, raw []byte) {
	var asked question
	if err := json.Unmarshal(raw, &asked); err != nil || asked.Request == nil {
		http.Error(w, "the body is no ConversionReview with a request", http.StatusBadRequest)
		return
	}
	var converted bytes.Buffer
	failure, err := c.convert(req.Context(), asked, raw, &converted)
	if err != nil {
		refuse(w, codeOf(err), err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if failure != nil {
		_ = json.NewEncoder(w).Encode(replyTo(asked, *failure, nil))
		return
	}
	// The buffer is written as it is, since encoding it would copy it more than once.
	head, err := json.Marshal(replyTo(asked, metav1.Status{Status: metav1.StatusSuccess}, []json.RawMessage{[]byte("0")}))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	before, after, _ := bytes.Cut(head, []byte("[0]"))
	for _, part := range [][]byte{before, []byte("["), converted.Bytes(), []byte("]"), after} {
		if _, err := w.Write(part); err != nil {
			return // the API server has gone
		}
	}
}

// reply is a ConversionReview with an answer.
type reply struct {
	metav1.TypeMeta `json:",inline"`
	Response        replied `json:"response"`
}

type replied struct {
	UID       json.RawMessage   `json:"uid"`
	Converted []json.RawMessage `json:"convertedObjects"`
	Result    metav1.Status     `json:"result"`
}

func replyTo(asked question, result metav1.Status, converted []json.RawMessage) reply {
	uid := asked.Request.UID
	if uid == nil {
		uid = []byte(`""`)
	}
	return reply{TypeMeta: asked.TypeMeta, Response: replied{UID: uid, Converted: converted, Result: result}}
}

// convert writes the objects in their other version, separated by commas. A failure is told to the API server in the words
// of the one handler; an error is about the request as a whole.
func (c converter) convert(ctx context.Context, asked question, raw []byte, into *bytes.Buffer) (*metav1.Status, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if !enter(decoder, "request", "objects") {
		return nil, nil // no objects, nothing to convert
	}
	for decoder.More() {
		var object json.RawMessage
		if err := decoder.Decode(&object); err != nil {
			return nil, fmt.Errorf("an object of the list: %w", err)
		}
		failure, err := c.convertOne(ctx, asked, object, into)
		if failure != nil || err != nil {
			return failure, err
		}
	}
	return nil, nil
}

func (c converter) convertOne(ctx context.Context, asked question, object json.RawMessage, into *bytes.Buffer) (*metav1.Status, error) {
	cost := decodedSize(object)
	if err := c.budget.take(ctx, cost); err != nil {
		return nil, err
	}
	defer c.budget.give(cost)
	review, err := json.Marshal(map[string]any{
		"apiVersion": asked.APIVersion, "kind": asked.Kind,
		"request": map[string]any{"uid": "one", "desiredAPIVersion": asked.Request.DesiredAPIVersion, "objects": []json.RawMessage{object}},
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "/convert", bytes.NewReader(review))
	if err != nil {
		return nil, err
	}
	got := &captured{header: http.Header{}, code: http.StatusOK}
	c.one.ServeHTTP(got, req)
	var said apiextensionsv1.ConversionReview
	if err := json.Unmarshal(got.body.Bytes(), &said); err != nil || got.code != http.StatusOK || said.Response == nil {
		return nil, errors.New("an object of the list cannot be read")
	}
	if said.Response.Result.Status != metav1.StatusSuccess || len(said.Response.ConvertedObjects) != 1 {
		return &said.Response.Result, nil
	}
	if into.Len() > 0 {
		into.WriteByte(',')
	}
	into.Write(said.Response.ConvertedObjects[0].Raw)
	return nil, nil
}

// enter goes into a list that is found under the names, one inside the other.
func enter(decoder *json.Decoder, names ...string) bool {
	for _, name := range names {
		if token, err := decoder.Token(); err != nil || token != json.Delim('{') || seek(decoder, name) != nil {
			return false
		}
	}
	token, err := decoder.Token()
	return err == nil && token == json.Delim('[')
}

// seek goes on to the value of a field of the object that the decoder is in.
func seek(decoder *json.Decoder, name string) error {
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		if key == name {
			return nil
		}
		var skipped json.RawMessage
		if err := decoder.Decode(&skipped); err != nil {
			return err
		}
	}
	return fmt.Errorf("no field %s", name)
}

// captured keeps an answer in memory.
type captured struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (c *captured) Header() http.Header { return c.header }

func (c *captured) WriteHeader(code int) { c.code = code }

func (c *captured) Write(p []byte) (int, error) { return c.body.Write(p) }
