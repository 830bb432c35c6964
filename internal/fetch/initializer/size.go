// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"sync"
)

var (
	sizePattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2}|[a-zA-Z]*)$`)
	})
	units = map[string]float64{
		"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
		"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
	}
)

// parseSize reads bytes as Kubernetes writes quantities, whose own code would bring a good part of Kubernetes along.
func parseSize(text string) (int64, error) {
	wrong := fmt.Errorf("%q is no size; write for example 20Gi", text)
	parts := sizePattern().FindStringSubmatch(text)
	if parts == nil {
		return 0, wrong
	}
	number, suffix := parts[1], parts[2]
	unit, known := units[suffix]
	if !known {
		number, unit = number+suffix, 1 // an exponent, or something that the next line refuses
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, wrong
	}
	if value = math.Ceil(value * unit); value >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is more than any disk has", text)
	}
	return int64(value), nil
}
