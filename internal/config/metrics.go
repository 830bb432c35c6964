// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var valid = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "modelplane_config_valid",
	Help: "Whether a key of the inferenceservice-config ConfigMap is in force as written (1), or cannot be used and keeps " +
		"the value before (0).",
}, []string{"key"})

func init() {
	metrics.Registry.MustRegister(valid)
}

// measure sets the gauge of every key, so that an alert can tell a good key from one that was never read.
func measure(problems []Problem) {
	bad := map[string]bool{}
	for _, p := range problems {
		if !p.Warning {
			bad[p.Key] = true
		}
	}
	for _, s := range sections {
		value := 1.0
		if bad[s.key] {
			value = 0
		}
		valid.WithLabelValues(s.key).Set(value)
	}
}
