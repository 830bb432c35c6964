// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
)

// TestCRDs makes sure that every packaged definition is in the binary.
func TestCRDs(t *testing.T) {
	onDisk, err := filepath.Glob("modelplane/files/crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defs, err := CRDs()
	if err != nil {
		t.Fatal(err)
	}
	if len(defs) == 0 || len(defs) != len(onDisk) {
		t.Errorf("%d definitions embedded, %d files packaged", len(defs), len(onDisk))
	}
	names, err := Resources()
	if err != nil || len(names) != len(defs) {
		t.Fatalf("%d names of %d definitions: %v", len(names), len(defs), err)
	}
	for i, def := range defs {
		name := names[i].Spec
		if name.Group != def.Spec.Group || name.Names.Kind != def.Spec.Names.Kind || name.Names.Plural != def.Spec.Names.Plural ||
			len(name.Versions) != len(def.Spec.Versions) || name.Versions[0].Name != def.Spec.Versions[0].Name {
			t.Errorf("%s is called %+v", onDisk[i], name)
		}
		if want := def.Spec.Group + "_" + def.Spec.Names.Plural + ".yaml"; filepath.Base(onDisk[i]) != want {
			t.Errorf("%s holds %s", onDisk[i], want)
		}
	}
}

// TestMeshRuntimes holds the runtimes for many models to what clients and adapters of the known ones rely on: names, formats
// with their protocols, and where they are managed and asked.
func TestMeshRuntimes(t *testing.T) {
	want := map[string]string{
		"modelplane-onnx-mesh": "onnx:1 | grpc-v2 | port:8085 port:8001 | ",
		"mlserver-1.x":         "sklearn:0 xgboost:1 lightgbm:3 | grpc-v2 | port:8085 port:8001 | mlserver:8001",
		"ovms-1.x":             "openvino_ir:opset1 | grpc-v1 | port:8085 port:8001 | ovms:8888",
		"torchserve-0.x":       "pytorch-mar:0 |  | port:8085 port:7070 | torchserve:7071",
		"triton-2.x":           "keras:2 onnx:1 pytorch:1 tensorflow:1 tensorflow:2 tensorrt:7 | grpc-v2 | port:8085 port:8001 | triton:8001",
	}
	files, err := filepath.Glob("modelplane/files/meshruntimes/*.yaml")
	if err != nil || len(files) != len(want) {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		var rt v1alpha1.ClusterServingRuntime
		if err := readShipped(file, &rt); err != nil {
			t.Fatal(err)
		}
		var formats []string
		for _, f := range rt.Spec.SupportedModelFormats {
			if ptr.Deref(f.AutoSelect, false) {
				formats = append(formats, f.Name+":"+ptr.Deref(f.Version, ""))
			}
		}
		var protocols []string
		for _, p := range rt.Spec.ProtocolVersions {
			protocols = append(protocols, string(p))
		}
		adapter := ""
		if a := rt.Spec.BuiltInAdapter; a != nil {
			adapter = fmt.Sprintf("%s:%d", a.ServerType, a.RuntimeManagementPort)
		}
		got := fmt.Sprintf("%s | %s | %s %s | %s", strings.Join(formats, " "), strings.Join(protocols, " "),
			ptr.Deref(rt.Spec.GrpcMultiModelManagementEndpoint, ""), ptr.Deref(rt.Spec.GrpcDataEndpoint, ""), adapter)
		if name := strings.TrimSuffix(filepath.Base(file), ".yaml"); rt.Name != name || got != want[name] || !ptr.Deref(rt.Spec.MultiModel, false) {
			t.Errorf("%s: %s has\n%s, want\n%s", file, rt.Name, got, want[name])
		}
	}
}
