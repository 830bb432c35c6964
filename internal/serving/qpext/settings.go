// SPDX-License-Identifier: Apache-2.0

package qpext

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Settings are what the pod's variables say.
type Settings struct {
	// Port is where everything is shown.
	Port int
	// Targets are asked for their metrics, in this order.
	Targets []Target
	// Labels are added to what the model server says.
	Labels []Label
}

// Target is somebody in the pod who has metrics.
type Target struct {
	Name, URL string
	// Labelled says that what it tells gets the labels.
	Labelled bool
}

// Label is a name and a value.
type Label struct{ Name, Value string }

// Names of targets, in metrics and logs.
const (
	queueProxy  = "queue-proxy"
	application = "application"
)

// readSettings takes the variables that pods of services have, with the known defaults.
func readSettings(env func(string) string) (Settings, error) {
	s := Settings{Targets: []Target{{Name: queueProxy, URL: "http://localhost:9091/metrics"}}}
	var err error
	if s.Port, err = port(env, "AGGREGATE_PROMETHEUS_METRICS_PORT", "9088"); err != nil {
		return s, err
	}
	if env("KSERVE_CONTAINER_PROMETHEUS_METRICS_PORT") != "" {
		from, err := port(env, "KSERVE_CONTAINER_PROMETHEUS_METRICS_PORT", "")
		if err != nil {
			return s, err
		}
		path := "/" + strings.TrimPrefix(cmp.Or(env("KSERVE_CONTAINER_PROMETHEUS_METRICS_PATH"), "/metrics"), "/")
		s.Targets = append(s.Targets, Target{application, "http://localhost:" + strconv.Itoa(from) + path, true})
	}
	for _, l := range []struct{ name, variable string }{
		{"service", "SERVING_SERVICE"}, {"configuration", "SERVING_CONFIGURATION"}, {"revision", "SERVING_REVISION"},
	} {
		// Dashboards know the first of these names, and the queue-proxy writes the second.
		s.Labels = append(s.Labels, Label{l.name + "_name", env(l.variable)}, Label{"kn_" + l.name + "_name", env(l.variable)})
	}
	return s, nil
}

func port(env func(string) string, name, fallback string) (int, error) {
	value := cmp.Or(env(name), fallback)
	number, err := strconv.Atoi(value)
	if err != nil || number < 1 || number > 65535 {
		return 0, fmt.Errorf("%s is %q; it must be a number from 1 to 65535", name, value)
	}
	return number, nil
}
