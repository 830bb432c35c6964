// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Settings are what the pod's variables say.
type Settings struct {
	// Port to listen on.
	Port int
	// Endpoint of the runtime, as gRPC writes it.
	Endpoint string
	// RootModelDir is where models go, StorageConfigDir where the storage secret is, ClaimsDir where claims are mounted.
	RootModelDir, StorageConfigDir, ClaimsDir string
	// Pulls is how many models are fetched at a time, and Parallel how many requests one of them has under way.
	Pulls, Parallel int
	// Metrics is where they are shown; nowhere when it is empty or 0.
	Metrics string
}

// readSettings takes the variables that the known puller takes, with its defaults.
func readSettings(env func(string) string) (Settings, error) {
	s := Settings{
		RootModelDir:     cmp.Or(env("ROOT_MODEL_DIR"), "/models"),
		StorageConfigDir: cmp.Or(env("STORAGE_CONFIG_DIR"), "/storage-config"),
		ClaimsDir:        cmp.Or(env("PVC_MOUNTS_DIR"), "/pvc_mounts"),
	}
	var err error
	if s.Port, err = strconv.Atoi(cmp.Or(env("PORT"), "8086")); err != nil || s.Port < 1 || s.Port > 65535 {
		return s, fmt.Errorf("PORT is %q; it must be a port", env("PORT"))
	}
	s.Endpoint, err = endpoint(cmp.Or(env("MODEL_SERVER_ENDPOINT"), "port:8085"))
	return s, err
}

// endpoint turns port:N, unix:PATH and HOST:PORT into what gRPC understands.
func endpoint(text string) (string, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "port":
		if n, err := strconv.Atoi(rest); err != nil || n < 1 || n > 65535 {
			return "", fmt.Errorf("MODEL_SERVER_ENDPOINT is %q; after port: there must be a port", text)
		}
		return "localhost:" + rest, nil
	case "unix":
		if file := "/" + strings.TrimLeft(strings.TrimPrefix(rest, "//"), "/"); strings.HasPrefix(rest, "/") && file != "/" {
			return "unix:" + file, nil
		}
		return "", fmt.Errorf("MODEL_SERVER_ENDPOINT is %q; after unix: there must be an absolute path", text)
	}
	if kind == "" || rest == "" {
		return "", fmt.Errorf("MODEL_SERVER_ENDPOINT is %q; write port:N, unix:/PATH or HOST:PORT", text)
	}
	return text, nil
}
