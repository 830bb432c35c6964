// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// What Knative's sidecar gives to the agent as well. None of it means anything here but must be what it says, and how long
// requests may take says how long the end may.
var environment = []struct {
	name string
	fits func(string) error
}{
	{"CONTAINER_CONCURRENCY", integer},
	{"QUEUE_SERVING_PORT", integer},
	{"USER_PORT", integer},
	{"REVISION_TIMEOUT_SECONDS", integer},
	{"SERVING_ENABLE_REQUEST_LOG", boolean},
	{"SERVING_ENABLE_PROBE_REQUEST_LOG", boolean},
	{"ENABLE_MULTI_CONTAINER_PROBES", boolean},
	{"ENABLE_HTTP2_AUTO_DETECTION", boolean},
}

func integer(value string) error {
	_, err := strconv.Atoi(value)
	return err
}

func boolean(value string) error {
	_, err := strconv.ParseBool(value)
	return err
}

func checkEnvironment(env func(string) string) error {
	for _, v := range environment {
		if value := env(v.name); value != "" && v.fits(value) != nil {
			return fmt.Errorf("%s is %q, which is not what it should be; set it right or leave it out", v.name, value)
		}
	}
	return nil
}

// isOn is for variables that were checked.
func isOn(value string) bool {
	on, err := strconv.ParseBool(value)
	return err == nil && on
}

// positive reads flags that are texts on the command line.
func positive(flag, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > 1<<30 {
		return 0, fmt.Errorf("%s is %q; it must be a number of at least 1", flag, value)
	}
	return n, nil
}

// annotations reads key=value pairs. A piece without a key belongs to the value before it, which had a comma.
func annotations(pieces []string) (map[string]string, error) {
	out := map[string]string{}
	last := ""
	for _, piece := range pieces {
		key, value, found := strings.Cut(piece, "=")
		switch {
		case found && key != "":
			out[key], last = value, key
		case last != "":
			out[last] += "," + piece
		default:
			return nil, fmt.Errorf("--metadata-annotations has %q, which is no KEY=VALUE", piece)
		}
	}
	return out, nil
}

// logLevel is what Knative says that logs should show, in the words of this program.
func logLevel(env func(string) string) string {
	level := env("SERVING_LOGGING_LEVEL")
	if level == "" {
		var config struct {
			Level string `json:"level"`
		}
		if json.Unmarshal([]byte(env("SERVING_LOGGING_CONFIG")), &config) == nil {
			level = config.Level
		}
	}
	switch level = strings.ToLower(level); level {
	case "debug", "info", "warn", "error":
		return level
	case "dpanic", "panic", "fatal":
		return "error"
	}
	return "info"
}

// patience is how the end goes: for how long no request must have come, and how long all of it may take.
type patience struct{ quiet, all time.Duration }

// patienceOf follows the pod's: 30 s by default, and under Knative as long as a request may take there, whose sidecar hands
// requests on until it has seen none for half a minute.
func patienceOf(env func(string) string) patience {
	seconds, err := strconv.Atoi(env("REVISION_TIMEOUT_SECONDS"))
	if env("QUEUE_SERVING_PORT") == "" || err != nil {
		return patience{5 * time.Second, 25 * time.Second}
	}
	return patience{30 * time.Second, max(time.Duration(seconds)*time.Second-5*time.Second, 40*time.Second)}
}
