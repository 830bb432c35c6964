// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
)

// Model is one that was read.
type Model struct {
	// Object is as in a catalog's file.
	Object map[string]any
	// revision of its files; readme is read again only when it changes.
	revision, readme string
}

// Result of reading a hub.
type Result struct {
	Models map[string]Model
	// Failed are models and patterns that could not be read, with the reason.
	Failed []string
}

// atOnce is how many requests are under way to one hub.
const atOnce = 4

// Read asks for every model that is wanted. Before is what was read the last time.
func (h *Hub) Read(ctx context.Context, before map[string]Model, now time.Time) (Result, error) {
	names, failed, err := h.Names(ctx)
	if err != nil {
		return Result{}, err
	}
	out := Result{Models: map[string]Model{}, Failed: failed}
	var mu sync.Mutex
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, name := range names {
		if !h.selection.Allows(name) {
			continue
		}
		group.Go(func() error {
			m, err := h.model(working, name, before[name], now)
			if pointless(err) || working.Err() != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.Failed = append(out.Failed, name+": "+err.Error())
				return nil
			}
			out.Models[name] = m
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Result{}, err
	}
	slices.Sort(out.Failed)
	return out, nil
}

// described is what a hub tells of a model.
type described struct {
	ID, Author, SHA string
	CreatedAt       string          `json:"createdAt"`
	LastModified    string          `json:"lastModified"`
	Private         bool            `json:"private"`
	Gated           json.RawMessage `json:"gated"`
	Tags            []string        `json:"tags"`
	PipelineTag     string          `json:"pipeline_tag"`
	Task            string          `json:"task"`
	Library         string          `json:"library_name"`
	Siblings        []struct {
		Name string `json:"rfilename"`
	} `json:"siblings"`
	Config struct {
		Architectures []string `json:"architectures"`
		Type          string   `json:"model_type"`
	} `json:"config"`
	Card map[string]any `json:"cardData"`
}

func (h *Hub) model(ctx context.Context, name string, before Model, now time.Time) (Model, error) {
	data, _, err := h.get(ctx, "/api/models/"+name, nil, maxAnswer)
	if err != nil {
		return Model{}, err
	}
	var d described
	if err := json.Unmarshal(data, &d); err != nil {
		return Model{}, errors.New("the hub answers with something that is no model")
	}
	if d.ID == "" {
		d.ID = name
	}
	m := Model{revision: d.SHA, readme: before.readme}
	if d.SHA == "" || d.SHA != before.revision {
		if m.readme, err = h.readme(ctx, d); pointless(err) {
			return Model{}, err
		}
	}
	m.Object = d.object(now)
	if m.readme != "" {
		m.Object["readme"] = m.readme
	}
	return m, nil
}

// readme is worth having, and no reason to do without the model.
func (h *Hub) readme(ctx context.Context, d described) (string, error) {
	for _, file := range d.Siblings {
		if strings.EqualFold(file.Name, "readme.md") || strings.EqualFold(file.Name, "readme") {
			data, _, err := h.get(ctx, "/"+d.ID+"/raw/main/"+file.Name, nil, maxReadme)
			return strings.ToValidUTF8(string(data), ""), err
		}
	}
	return "", nil
}

// object is the model as a catalog's file would have it.
func (d described) object(now time.Time) map[string]any {
	out := map[string]any{"name": d.ID, "externalId": d.ID}
	artifact := map[string]any{"name": d.ID + "-hf-artifact", "externalId": d.ID, "uri": "hf://" + d.ID}
	for name, value := range map[string]string{"createTimeSinceEpoch": d.CreatedAt, "lastUpdateTimeSinceEpoch": d.LastModified} {
		if t, err := time.Parse(time.RFC3339, value); err == nil && t.UnixMilli() >= 0 {
			out[name] = strconv.FormatInt(t.UnixMilli(), 10)
			artifact[name] = out[name]
		}
	}
	for name, value := range map[string]string{"provider": d.Author, "libraryName": d.Library} {
		if value != "" {
			out[name] = value
		}
	}
	if tasks := d.tasks(); len(tasks) > 0 {
		out["tasks"] = list(tasks)
	}
	d.card(out)
	properties := map[string]any{
		"model_type": entry.StringProperty(modelType(d.tasks())),
		"hf_private": entry.StringProperty(strconv.FormatBool(d.Private)), "hf_gated": entry.StringProperty(d.gated()),
		"last_synced": entry.StringProperty(strconv.FormatInt(now.UnixMilli(), 10)),
	}
	var tags []string
	for _, tag := range d.Tags {
		license, isLicense := strings.CutPrefix(tag, "license:")
		if !isLicense {
			tags = append(tags, tag)
		} else if out["license"] == nil && license != "" {
			out["license"] = license
		}
	}
	for name, values := range map[string][]string{"hf_tags": tags, "hf_architectures": d.Config.Architectures} {
		if data, err := json.Marshal(values); err == nil && len(values) > 0 {
			properties[name] = entry.StringProperty(string(data))
		}
	}
	if d.Config.Type != "" {
		properties["hf_model_type"] = entry.StringProperty(d.Config.Type)
	}
	out["customProperties"], out["artifacts"] = properties, []any{artifact}
	return out
}

// card is what the authors wrote; some hubs have it one level deeper.
func (d described) card(out map[string]any) {
	card := d.Card
	if inner, ok := card["data"].(map[string]any); ok {
		card = inner
	}
	if s, _ := card["description"].(string); s != "" {
		out["description"] = s
	}
	switch language := card["language"].(type) {
	case string:
		out["language"] = []any{language}
	case []any:
		if !slices.ContainsFunc(language, func(v any) bool { _, ok := v.(string); return !ok }) {
			out["language"] = language
		}
	}
	for _, name := range []string{"license_link", "licenseLink", "license_url", "licenseUrl", "license"} {
		if s, _ := card[name].(string); strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") {
			out["licenseLink"] = s
			return
		}
	}
}

func (d described) tasks() []string {
	var tasks []string
	for _, task := range []string{d.Task, d.PipelineTag} {
		if task != "" && !slices.Contains(tasks, task) {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

// gated is true, false, or the way in which access is granted.
func (d described) gated() string {
	if s := strings.Trim(string(d.Gated), `"`); s != "null" {
		return s
	}
	return ""
}

func list(texts []string) []any {
	out := make([]any, len(texts))
	for i, s := range texts {
		out[i] = s
	}
	return out
}

// Tasks by what models for them do: make something new, or say something about what they are given.
var (
	generative = []string{
		"text-generation", "text2text-generation", "summarization", "translation", "text-to-image", "unconditional-image-generation",
		"image-to-image", "image-text-to-text", "text-to-speech", "text-to-audio", "text-to-video", "audio-to-audio",
	}
	predictive = []string{
		"text-classification", "token-classification", "image-classification", "zero-shot-classification", "audio-classification",
		"question-answering", "document-question-answering", "object-detection", "image-segmentation", "keypoint-detection",
		"feature-extraction", "image-feature-extraction", "sentence-similarity", "fill-mask", "tabular-classification", "tabular-regression",
	}
)

func modelType(tasks []string) string {
	has := func(of []string) bool {
		return slices.ContainsFunc(tasks, func(task string) bool { return slices.Contains(of, strings.ToLower(task)) })
	}
	switch {
	case has(generative):
		return "generative"
	case has(predictive):
		return "predictive"
	}
	return "unknown"
}

// Objects of a result, in the order of their names.
func (r Result) Objects() []map[string]any {
	names := make([]string, 0, len(r.Models))
	for name := range r.Models {
		names = append(names, name)
	}
	slices.Sort(names)
	out := make([]map[string]any, len(names))
	for i, name := range names {
		out[i] = r.Models[name].Object
	}
	return out
}

// String keeps the token out of whatever prints a hub.
func (h *Hub) String() string { return fmt.Sprintf("the hub at %s", h.base.Host) }
