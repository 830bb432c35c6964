// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	ort "github.com/yalue/onnxruntime_go"
)

// libraryName is what the loader looks for when nothing else is said.
const libraryName = "libonnxruntime.so.1"

// LoadLibrary loads ONNX Runtime for this process: the file that is given, or the one beside this program, or what the
// loader finds.
func LoadLibrary(path string) error {
	if path == "" {
		path = besideProgram()
	}
	ort.SetSharedLibraryPath(path)
	if err := ort.InitializeEnvironment(ort.WithLogLevelWarning()); err != nil {
		return fmt.Errorf("loading ONNX Runtime from %s: %w; point ORT_LIBRARY to libonnxruntime.so", path, err)
	}
	return nil
}

// besideProgram looks in the program's directory, also where there is no /proc to ask for it.
func besideProgram() string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	if file := filepath.Join(filepath.Dir(self), libraryName); strings.Contains(self, "/") && isFile(file) {
		return file
	}
	return libraryName
}

// LibraryVersion is the version of the ONNX Runtime that was loaded.
func LibraryVersion() string { return ort.GetVersion() }
