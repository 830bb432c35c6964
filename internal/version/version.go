// SPDX-License-Identifier: Apache-2.0

// Package version knows which build is running. Release builds set the variables with the linker; any other build is
// described by what the Go toolchain recorded. It must not import anything else of the project.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set with -ldflags "-X github.com/modelplane/modelplane/internal/version.version=v1.2.3 …".
var (
	version string
	commit  string
	date    string
)

// Info describes a build.
type Info struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	Date      string `json:"date"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// Get describes the running build. Facts that nobody recorded are "unknown" rather than empty, so that a person sees
// that something is missing.
func Get() Info {
	build, _ := debug.ReadBuildInfo()
	return from(Info{Version: version, Commit: commit, Date: date}, build)
}

// from fills what the linker did not set from what the toolchain recorded.
func from(set Info, build *debug.BuildInfo) Info {
	info := set
	info.GoVersion = runtime.Version()
	info.Platform = runtime.GOOS + "/" + runtime.GOARCH
	if build != nil {
		settings := map[string]string{}
		for _, s := range build.Settings {
			settings[s.Key] = s.Value
		}
		fill(&info.Version, build.Main.Version)
		if info.Commit == "" && settings["vcs.modified"] == "true" && settings["vcs.revision"] != "" {
			info.Commit = settings["vcs.revision"] + "-modified"
		}
		fill(&info.Commit, settings["vcs.revision"])
		fill(&info.Date, settings["vcs.time"])
	}
	for _, field := range []*string{&info.Version, &info.Commit, &info.Date} {
		fill(field, "unknown")
	}
	return info
}

func fill(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

// String is one line for a person.
func (i Info) String() string {
	return fmt.Sprintf("modelplane %s (commit %s, built %s, %s, %s)", i.Version, i.Commit, i.Date, i.GoVersion, i.Platform)
}
