// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	certificateExpiry = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "modelplane_serving_certificate_expiry_timestamp_seconds",
		Help: "When the certificate that this replica serves expires, in seconds since the epoch.",
	})
	rotationSteps = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "modelplane_certificate_rotation_steps_total",
		Help: "Steps of certificate rotation that this replica took, by step.",
	}, []string{"step"})
	injections = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "modelplane_webhook_injections_total",
		Help: "Writes of address or trusted roots to webhook configurations and CRDs, by kind.",
	}, []string{"kind"})
)

func init() {
	metrics.Registry.MustRegister(certificateExpiry, rotationSteps, injections)
}
