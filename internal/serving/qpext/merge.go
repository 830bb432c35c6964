// SPDX-License-Identifier: Apache-2.0

package qpext

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// families are metrics by name.
type families map[string]*dto.MetricFamily

// parse reads metrics as Prometheus' text has them. Half a text is refused: it would look as if the rest had gone away.
func parse(text io.Reader) (families, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	found, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, err
	}
	for name := range found {
		if !model.LegacyValidation.IsValidMetricName(name) {
			return nil, fmt.Errorf("%q is no name of a metric", name)
		}
	}
	f := families(found)
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if other := f.meant(name, f[name].GetType()); other != "" {
			return nil, fmt.Errorf("samples of %s and %s have the same names", name, other)
		}
	}
	return f, nil
}

// suffixes of the names that the samples of a family have besides its own.
func suffixes(kind dto.MetricType) []string {
	switch kind {
	case dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM:
		return []string{"_bucket", "_count", "_sum"}
	case dto.MetricType_SUMMARY:
		return []string{"_count", "_sum"}
	}
	return nil
}

// meant finds another family of which samples would be taken for those of a family of this name and kind, or the other way
// round.
func (f families) meant(name string, kind dto.MetricType) string {
	for _, suffix := range suffixes(kind) {
		if f[name+suffix] != nil {
			return name + suffix
		}
	}
	for _, suffix := range suffixes(dto.MetricType_HISTOGRAM) {
		base, ok := strings.CutSuffix(name, suffix)
		if mine := f[base]; ok && mine != nil && slices.Contains(suffixes(mine.GetType()), suffix) {
			return base
		}
	}
	return ""
}

// label adds labels to every metric. One that is there already gets another name, as Prometheus does it, and one that no
// other has: a name that is there twice makes Prometheus refuse all.
func (f families) label(labels []Label) {
	for _, family := range f {
		for _, metric := range family.Metric {
			for _, own := range metric.Label {
				if !taken(own.GetName(), labels) {
					continue
				}
				renamed := own.GetName()
				for taken(renamed, labels) || has(metric, renamed) {
					renamed = "exported_" + renamed
				}
				own.Name = &renamed
			}
			for i := range labels {
				metric.Label = append(metric.Label, &dto.LabelPair{Name: &labels[i].Name, Value: &labels[i].Value})
			}
		}
	}
}

func taken(name string, labels []Label) bool {
	return slices.ContainsFunc(labels, func(l Label) bool { return l.Name == name })
}

func has(metric *dto.Metric, name string) bool {
	return slices.ContainsFunc(metric.Label, func(l *dto.LabelPair) bool { return l.GetName() == name })
}

// add takes over metrics of others. A family that both have is one, with the metrics of both; where they mean different
// things by a name, the newcomer's are left out and told of.
func (f families) add(others families) error {
	var refused []string
	for _, name := range slices.Sorted(maps.Keys(others)) {
		family := others[name]
		switch mine := f[name]; {
		case mine == nil && f.meant(name, family.GetType()) != "":
			refused = append(refused, name)
		case mine == nil:
			f[name] = family
		case mine.GetType() == family.GetType():
			mine.Metric = append(mine.Metric, family.Metric...)
		default:
			refused = append(refused, name)
		}
	}
	if refused != nil {
		return errors.New("metrics of the same name are of another kind: " + strings.Join(refused, ", "))
	}
	return nil
}

// write writes everything in the order of names.
func (f families) write(w io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if _, err := expfmt.MetricFamilyToText(w, f[name]); err != nil {
			return err
		}
	}
	return nil
}
