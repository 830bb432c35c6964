// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFrom(t *testing.T) {
	recorded := &debug.BuildInfo{
		Main: debug.Module{Version: "v0.3.0"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"},
			{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		},
	}
	modified := &debug.BuildInfo{Settings: append([]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}},
		recorded.Settings...)}
	for _, c := range []struct {
		name  string
		set   Info
		build *debug.BuildInfo
		want  Info
	}{
		{
			name:  "the linker wins",
			set:   Info{Version: "v1.0.0", Commit: "def", Date: "today"},
			build: recorded,
			want:  Info{Version: "v1.0.0", Commit: "def", Date: "today"},
		},
		{
			name:  "the toolchain fills in",
			build: recorded,
			want:  Info{Version: "v0.3.0", Commit: "abc", Date: "2026-01-02T03:04:05Z"},
		},
		{
			name:  "local changes show",
			build: modified,
			want:  Info{Version: "unknown", Commit: "abc-modified", Date: "2026-01-02T03:04:05Z"},
		},
		{
			name: "nothing recorded",
			want: Info{Version: "unknown", Commit: "unknown", Date: "unknown"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.GoVersion = runtime.Version()
			c.want.Platform = runtime.GOOS + "/" + runtime.GOARCH
			if diff := cmp.Diff(c.want, from(c.set, c.build)); diff != "" {
				t.Errorf("unexpected (-want +got):\n%s", diff)
			}
		})
	}
}

func TestString(t *testing.T) {
	if line := Get().String(); !strings.HasPrefix(line, "modelplane ") || strings.Contains(line, "\n") {
		t.Errorf("String() = %q, want one line that begins with the program's name", line)
	}
}
