// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
)

// Measured is what is known of a model beside its description: how good and how fast it is.
type Measured struct {
	// Properties are added to the model.
	Properties map[string]entry.Property
	// Accuracy is by benchmark; nil if nothing is known.
	Accuracy *Accuracy
	// Performance are records of single measurements.
	Performance []map[string]any
}

// Accuracy of a model in evaluations.
type Accuracy struct {
	Scores           map[string]float64
	Created, Updated int64
}

// Bounds of measurements.
const (
	maxMeasuredDirs = 20_000
	maxRecords      = 10_000
	maxAllRecords   = 200_000
	maxRecordFile   = 64 << 20
	maxRecordLine   = 256 << 10
	maxMetadata     = 1 << 20
)

// Measurements below directories, by the names of models. Files that cannot be read are told of and left out.
func Measurements(roots []string) (map[string]*Measured, []string) {
	out := map[string]*Measured{}
	var problems []string
	dirs, records := 0, 0
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() != "metadata.json" {
				return err
			}
			if dirs++; dirs > maxMeasuredDirs {
				return fmt.Errorf("there are more than %d directories with measurements", maxMeasuredDirs)
			}
			name, m, err := readMeasured(filepath.Dir(path))
			if err != nil {
				problems = append(problems, err.Error())
				return nil
			}
			if records += len(m.Performance); records > maxAllRecords {
				return fmt.Errorf("there are more than %d measurements", maxAllRecords)
			}
			out[name] = m
			return nil
		})
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	return out, problems
}

func readMeasured(dir string) (string, *Measured, error) {
	data, err := ReadFile(filepath.Join(dir, "metadata.json"), maxMetadata)
	if err != nil {
		return "", nil, err
	}
	var about struct {
		ID       string   `json:"id"`
		Accuracy *float64 `json:"overall_accuracy"`
		Size     string   `json:"size"`
		Tensor   string   `json:"tensor_type"`
		Variants string   `json:"variant_group_id"`
	}
	if err := json.Unmarshal(data, &about); err != nil || about.ID == "" {
		return "", nil, fmt.Errorf("%s does not name a model in its field id", filepath.Join(dir, "metadata.json"))
	}
	m := &Measured{Properties: map[string]entry.Property{}}
	for name, value := range map[string]string{"size": about.Size, "tensor_type": about.Tensor, "variant_group_id": about.Variants} {
		if value != "" {
			m.Properties[name] = entry.StringProperty(value)
		}
	}
	if err := records(filepath.Join(dir, "evaluations.ndjson"), m.evaluation); err != nil {
		return "", nil, err
	}
	if m.Accuracy != nil && about.Accuracy != nil {
		m.Accuracy.Scores["overall_average"] = *about.Accuracy
	}
	err = records(filepath.Join(dir, "performance.ndjson"), func(record map[string]any) {
		m.Performance = append(m.Performance, record)
	})
	return about.ID, m, err
}

// records of a file, one per line. A line that cannot be read is passed over; there may be no file.
func records(path string, take func(map[string]any)) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxRecordLine)
	taken, size := 0, 0
	for lines.Scan() {
		size += len(lines.Bytes())
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.UseNumber()
		var record map[string]any
		if d.Decode(&record) != nil || record == nil {
			continue
		}
		if taken++; taken > maxRecords || size > maxRecordFile {
			return fmt.Errorf("%s has more than %d records or %d bytes", path, maxRecords, maxRecordFile)
		}
		take(record)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func (m *Measured) evaluation(record map[string]any) {
	benchmark, _ := record["benchmark"].(string)
	score, _ := record["score"].(json.Number)
	value, err := score.Float64()
	if benchmark == "" || err != nil {
		return
	}
	if m.Accuracy == nil {
		m.Accuracy = &Accuracy{Scores: map[string]float64{}}
	}
	m.Accuracy.Scores[benchmark] = value
	if created := whole(record["created_at"]); created > 0 && (m.Accuracy.Created == 0 || created < m.Accuracy.Created) {
		m.Accuracy.Created = created
	}
	m.Accuracy.Updated = max(m.Accuracy.Updated, whole(record["updated_at"]))
}

func whole(value any) int64 {
	n, _ := value.(json.Number)
	i, err := n.Int64()
	if err != nil || i < 0 {
		return 0
	}
	return i
}

// Attach adds measurements to a model of their name.
func Attach(e *entry.Entry, m *Measured) (*entry.Entry, error) {
	var objects []map[string]any
	if m.Accuracy != nil {
		objects = append(objects, m.Accuracy.object(e))
	}
	seen := map[any]bool{}
	for _, record := range m.Performance {
		if object := performance(record); !seen[object["name"]] {
			objects, seen[object["name"]] = append(objects, object), true
		}
	}
	parts, err := entry.Models.ReadParts(e, objects)
	if err != nil {
		return nil, err
	}
	if len(m.Properties) > 0 {
		e = e.With(m.Properties)
	}
	return e.WithParts(parts), nil
}

func (a *Accuracy) object(e *entry.Entry) map[string]any {
	name := "accuracy-metrics-model-" + strconv.FormatInt(e.ID, 10)
	properties := map[string]any{}
	for benchmark, score := range a.Scores {
		properties[benchmark] = entry.DoubleProperty(score)
	}
	return timed(map[string]any{
		"name": name, "externalId": name, "artifactType": entry.MetricsArtifact, "metricsType": entry.AccuracyMetrics, "customProperties": properties,
	}, a.Created, a.Updated)
}

func performance(record map[string]any) map[string]any {
	id, _ := record["id"].(string)
	if id == "" {
		data, err := json.Marshal(record)
		if err != nil { // it came from JSON
			data = nil
		}
		id = strconv.FormatInt(entry.ID(string(data)), 10)
	}
	properties := map[string]any{}
	for name, value := range record {
		if name != "created_at" && name != "updated_at" && value != nil {
			properties[name] = entry.PropertyOf(value)
		}
	}
	return timed(map[string]any{
		"name": "performance-" + id, "externalId": id, "artifactType": entry.MetricsArtifact, "metricsType": entry.PerformanceMetrics,
		"customProperties": properties,
	}, whole(record["created_at"]), whole(record["updated_at"]))
}

func timed(object map[string]any, created, updated int64) map[string]any {
	for name, t := range map[string]int64{"createTimeSinceEpoch": created, "lastUpdateTimeSinceEpoch": updated} {
		if t > 0 {
			object[name] = strconv.FormatInt(t, 10)
		}
	}
	return object
}
