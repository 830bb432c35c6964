// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"encoding/json"
	"fmt"
	"math"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// canaries makes the predictors on trial. Each is the stable predictor with
// what the canary says differently, and has a fixed number of pods. One that cannot
// be made is no reason to hold back the others or the stable predictor.
func (b *builder) canaries() []*Component {
	var out []*Component
	for i := range b.isvc.Spec.Canary {
		canary := &b.isvc.Spec.Canary[i]
		c, failure := b.canary(&canary.Predictor.PredictorSpec)
		if failure != nil {
			failure.Problem.Message = fmt.Sprintf("spec.canary[%d].predictor: %s", i, failure.Problem.Message)
			c = &Component{Failed: failure, Part: workload.Part{IsvcName: b.isvc.Name, Component: v1beta1.PredictorComponent,
				Name: PredictorName(b.isvc, canary.Predictor.Name), Namespace: b.isvc.Namespace}}
		}
		c.Canary, c.Percent = canary.Predictor.Name, canary.TrafficPercent
		c.Replicas = canaryReplicas(&b.isvc.Spec.Predictor, canary)
		out = append(out, c)
	}
	return out
}

func (b *builder) canary(differs *v1beta1.PredictorSpec) (*Component, *Failure) {
	spec, err := Effective(&b.isvc.Spec.Predictor, differs)
	if err != nil {
		return nil, b.failed(v1beta1.PredictorComponent, err)
	}
	return b.predictor(spec)
}

// Effective is the canary's predictor on top of the stable one: fields of the
// canary win, lists are taken whole. Scaling stays with the stable predictor.
func Effective(stable, canary *v1beta1.PredictorSpec) (*v1beta1.PredictorSpec, error) {
	base, err := json.Marshal(stable)
	if err != nil {
		return nil, err
	}
	overlay, err := json.Marshal(canary)
	if err != nil {
		return nil, err
	}
	joined, err := jsonpatch.MergePatch(base, overlay)
	if err != nil {
		return nil, err
	}
	out := &v1beta1.PredictorSpec{}
	if err := json.Unmarshal(joined, out); err != nil {
		return nil, err
	}
	out.MinReplicas, out.MaxReplicas, out.ScaleTarget, out.ScaleMetric = nil, 0, nil, nil
	out.ScaleMetricType, out.AutoScaling, out.WorkerSpec = nil, nil, nil
	return out, nil
}

// canaryReplicas is the canary's share of the stable predictor's pods, rounded
// up, unless it asks for a number.
func canaryReplicas(stable *v1beta1.PredictorSpec, canary *v1beta1.CanarySpec) *int32 {
	if n := canary.Predictor.MinReplicas; n != nil {
		return n
	}
	share := float64(max(ptr.Deref(stable.MinReplicas, 1), 1)) * float64(canary.TrafficPercent) / 100
	return ptr.To(int32(math.Ceil(share)))
}

// Predictors are the specs that runtimes are needed for. A canary that cannot
// be understood is the plan's to complain about.
func Predictors(isvc *v1beta1.InferenceService) []*v1beta1.PredictorSpec {
	out := []*v1beta1.PredictorSpec{&isvc.Spec.Predictor}
	for i := range isvc.Spec.Canary {
		if spec, err := Effective(&isvc.Spec.Predictor, &isvc.Spec.Canary[i].Predictor.PredictorSpec); err == nil {
			out = append(out, spec)
		}
	}
	return out
}
