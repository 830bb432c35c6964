// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

const offered = `{apiVersion: serving.kserve.io/v1alpha1, kind: ClusterServingRuntime, metadata: {name: modelplane-onnx}, spec: {supportedModelFormats: [{name: onnx, autoSelect: true}], containers: []}}
---
{apiVersion: serving.kserve.io/v1alpha1, kind: ServingRuntime, metadata: {name: many, namespace: a}, spec: {multiModel: true, supportedModelFormats: [{name: sklearn}], containers: []}}
---
{apiVersion: serving.kserve.io/v1alpha1, kind: ServingRuntime, metadata: {name: elsewhere, namespace: b}, spec: {supportedModelFormats: [{name: pmml}], containers: []}}`

func serves(fields string) string { return isvc(standard, `{predictor: {model: {`+fields+`}}}`) }

// meantExamples are about what the cluster would not do, or not as meant.
var meantExamples = []example{
	accepted("a format that is served", serves(`modelFormat: {name: onnx}, storageUri: s3://a`)).with(offered),
	accepted("a misspelt format", serves(`modelFormat: {name: onx}, storageUri: s3://a`)).with(offered),
	accepted("a format of another namespace", serves(`modelFormat: {name: pmml}, storageUri: s3://a`)).with(offered),
	accepted("a format before any runtime", serves(`modelFormat: {name: onx}, storageUri: s3://a`)),
	accepted("a misspelt runtime", serves(`modelFormat: {name: onnx}, runtime: modelplane-onx, storageUri: s3://a`)).with(offered),
	accepted("a server without a model", serves(`modelFormat: {name: onnx}`)).with(offered),
	accepted("a server for many models", serves(`modelFormat: {name: sklearn}, runtime: many`)).with(offered),
	accepted("a misspelt annotation", isvc(standard+" autoscalerclass=none disable-autoupdate=x", plain)),
	accepted("an annotation for Secrets", isvc(standard+" s3-endpoint=minio", plain)),
	accepted("a request at the limit", serves(`modelFormat: {name: onnx}, storageUri: s3://a, resources: {requests: {cpu: "1"}, limits: {cpu: 1000m}}`)),
	rejected("a request above the limit", serves(`modelFormat: {name: onnx}, storageUri: s3://a, resources: {requests: {cpu: "2"}, limits: {cpu: 1500m}}`)),
	accepted("annotations that are read", isvc(standard+" secretKey=a stop=false", plain)),
}

// Every annotation of the group that users set is known, or told to stand elsewhere.
func TestAnnotationsAreKnown(t *testing.T) {
	keys, err := os.ReadFile("../../../api/serving/v1beta1/keys.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`Annotation\w+ += prefix \+ "([^"]+)"`).FindAllSubmatch(keys, -1)
	if len(found) < 30 {
		t.Fatalf("only %d annotations were found", len(found))
	}
	for _, m := range found {
		if name := string(m[1]); !slices.Contains(readAnnotations, v1beta1.Group+"/"+name) && !strings.HasPrefix(name, "s3-") {
			t.Errorf("%s is warned of", name)
		}
	}
}
