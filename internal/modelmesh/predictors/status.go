// SPDX-License-Identifier: Apache-2.0

package predictors

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/modelmesh/model"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// With these words a mesh says that no pod may load a model, and with this end that none ever will as things are.
const (
	noHome    = "There are no running instances that meet the label requirements of type "
	noRuntime = "[_no_runtime]"
)

// homeless tells whether what is missing is a pod that may load the model, of which no record will tell.
func homeless(info *wire.VModelStatusInfo) bool {
	for _, s := range []*wire.ModelStatusInfo{info.GetActiveModelStatus(), info.GetTargetModelStatus()} {
		if s.GetStatus() == wire.ModelStatusInfo_LOADING_FAILED && strings.HasPrefix(firstError(s), noHome) {
			return true
		}
	}
	return false
}

func firstError(s *wire.ModelStatusInfo) string {
	if len(s.GetErrors()) == 0 {
		return ""
	}
	return s.GetErrors()[0]
}

var states = map[wire.ModelStatusInfo_ModelStatus]v1beta1.ModelState{
	wire.ModelStatusInfo_NOT_LOADED: v1beta1.Standby, wire.ModelStatusInfo_LOADING: v1beta1.Loading,
	wire.ModelStatusInfo_LOADED: v1beta1.Loaded, wire.ModelStatusInfo_LOADING_FAILED: v1beta1.FailedToLoad,
}

var transitions = map[wire.VModelStatusInfo_VModelStatus]v1alpha1.PredictorTransition{
	wire.VModelStatusInfo_DEFINED: v1alpha1.UpToDate, wire.VModelStatusInfo_TRANSITIONING: v1alpha1.InProgress,
	wire.VModelStatusInfo_TRANSITION_FAILED: v1alpha1.BlockedByFailedLoad,
}

// decoded is the state of one model in the words of Predictors.
type decoded struct {
	state   v1beta1.ModelState
	reason  v1alpha1.PredictorFailureReason
	message string
}

func decodeModel(s *wire.ModelStatusInfo) decoded {
	if s == nil {
		return decoded{state: v1beta1.Pending}
	}
	d := decoded{state: states[s.GetStatus()], message: firstError(s)}
	if d.state == v1beta1.Standby { // why it is not loaded at once is no failure of the model
		return decoded{state: d.state}
	}
	if d.message != "" {
		d.reason = v1alpha1.ModelLoadFailed
	}
	if d.state != v1beta1.FailedToLoad {
		return d
	}
	rest, without := strings.CutPrefix(d.message, noHome)
	switch {
	case !without:
		return decoded{v1beta1.FailedToLoad, v1alpha1.ModelLoadFailed, d.message}
	case !strings.HasSuffix(rest, noRuntime):
		return decoded{v1beta1.Loading, v1alpha1.RuntimeUnhealthy, "Waiting for a supporting runtime Pod to become available"}
	case model.Pinned(rest):
		return decoded{v1beta1.FailedToLoad, v1alpha1.RuntimeNotRecognized, "The specified runtime name is not recognized"}
	}
	return decoded{v1beta1.FailedToLoad, v1alpha1.NoSupportingRuntime, "No ServingRuntime supports the specified model type and protocol"}
}

// decode says what the mesh does, in the words of Predictors. Without judge only the states are taken over, because what
// was asked for is another matter.
func (t *task) decode(info *wire.VModelStatusInfo, judge bool) {
	active := decodeModel(info.GetActiveModelStatus())
	if active.state != "" {
		t.now.ActiveModelState = active.state
	}
	t.now.TotalCopies, t.now.FailedCopies = 0, 0
	t.count(info.GetActiveModelStatus(), active)
	target, status := active, info.GetActiveModelStatus()
	t.now.TargetModelState = ""
	if info.GetActiveModelId() != info.GetTargetModelId() {
		status = info.GetTargetModelStatus()
		target = decodeModel(status)
		if status != nil {
			t.now.TargetModelState = target.state
			t.count(status, target)
		}
	}
	if judge {
		t.judge(info, status, target)
	}
	waiting := t.now.LastFailureInfo != nil && t.now.LastFailureInfo.Reason == v1alpha1.RuntimeUnhealthy
	state := t.now.ActiveModelState
	t.now.Available = state != "" && state != v1beta1.FailedToLoad && !waiting
	t.endpoints()
}

// count adds copies. Where there can be none, what the mesh lists is something else.
func (t *task) count(s *wire.ModelStatusInfo, d decoded) {
	if d.reason != "" && d.reason != v1alpha1.ModelLoadFailed {
		return
	}
	for _, c := range s.GetModelCopyInfos() {
		t.now.TotalCopies++
		if c.GetCopyStatus() == wire.ModelStatusInfo_LOADING_FAILED {
			t.now.FailedCopies++
		}
	}
}

// judge compares with what was asked for.
func (t *task) judge(info *wire.VModelStatusInfo, status *wire.ModelStatusInfo, target decoded) {
	t.now.TransitionStatus = cmp.Or(transitions[info.GetStatus()], t.now.TransitionStatus, v1alpha1.InProgress)
	if t.now.TransitionStatus == v1alpha1.InvalidSpec {
		t.now.TransitionStatus = v1alpha1.InProgress
	}
	if t.now.TransitionStatus == v1alpha1.BlockedByFailedLoad && target.state == v1beta1.Loading {
		t.now.TransitionStatus = v1alpha1.InProgress // it is tried again
	}
	before := t.before.LastFailureInfo
	t.now.LastFailureInfo = nil
	switch {
	case status == nil || status.GetStatus() == wire.ModelStatusInfo_LOADED:
	case target.reason == "":
		if before != nil && before.Reason == v1alpha1.RuntimeUnhealthy && target.state == v1beta1.Loading {
			t.now.LastFailureInfo = before.DeepCopy()
		}
	default:
		t.fail(target.reason, target.message, info.GetTargetModelId())
		t.locate(status)
	}
}

// fail notes a failure. Its time is when it was first noticed, so that the same failure is written once.
func (t *task) fail(reason v1alpha1.PredictorFailureReason, message, id string) {
	f := &v1alpha1.PredictorFailure{Reason: reason, Message: message, ModelID: id}
	before := t.before.LastFailureInfo
	if before != nil && before.Reason == reason && before.ModelID == id && before.Time != nil {
		f.Time = before.Time.DeepCopy()
	} else {
		now := metav1.NewTime(t.seen.Now).Rfc3339Copy()
		f.Time = &now
	}
	t.now.LastFailureInfo = f
}

// locate says where a model did not load, and when.
func (t *task) locate(s *wire.ModelStatusInfo) {
	if t.now.LastFailureInfo.Reason != v1alpha1.ModelLoadFailed {
		return
	}
	for _, c := range s.GetModelCopyInfos() {
		if c.GetCopyStatus() != wire.ModelStatusInfo_LOADING_FAILED {
			continue
		}
		t.now.LastFailureInfo.Location = c.GetLocation()
		if at := c.GetTime(); at != 0 {
			when := metav1.NewTime(millis(at)).Rfc3339Copy()
			t.now.LastFailureInfo.Time = &when
		}
		return
	}
}

// endpoints says where requests go.
func (t *task) endpoints() {
	p, host := t.seen.Platform, t.seen.Platform.Service+"."+t.seen.Mesh.Namespace
	t.now.GrpcEndpoint = "grpc://" + net.JoinHostPort(host, strconv.Itoa(int(p.Port)))
	t.now.HTTPEndpoint = ""
	if p.RESTPort != 0 {
		scheme := "http"
		if p.TLSSecret != "" {
			scheme = "https"
		}
		t.now.HTTPEndpoint = scheme + "://" + net.JoinHostPort(host, strconv.Itoa(int(p.RESTPort)))
	}
}

// problem is what keeps the model from answering, for the engine to tell of.
func (t *task) problem() *engine.Problem {
	if !t.said || t.fault == "" && t.now.LastFailureInfo == nil {
		return nil
	}
	ready := t.ready()
	switch {
	case ready.Status == metav1.ConditionTrue:
		return nil
	case t.fault == "" && t.now.LastFailureInfo.Reason != v1alpha1.RuntimeUnhealthy && ready.Reason == string(t.now.LastFailureInfo.Reason):
		return engine.MustChange(ready.Reason, "%s", ready.Message)
	}
	return engine.WaitFor(ready.Reason, "%s", ready.Message)
}

// events tell that a change does not come about while what was before goes on answering.
func (t *task) events() []engine.Event {
	if !t.said {
		return nil
	}
	ready := t.ready()
	latest := t.latest(ready)
	if ready.Status != metav1.ConditionTrue || latest.Status != metav1.ConditionFalse {
		return nil
	}
	return []engine.Event{{Warning: true, Reason: latest.Reason, Message: latest.Message}}
}

// ready says whether requests are answered, why not, and what to do.
func (t *task) ready() kube.Condition {
	c := kube.Condition{Type: ConditionReady, Status: metav1.ConditionFalse}
	f := t.now.LastFailureInfo
	switch state := t.now.ActiveModelState; {
	case t.fault != "":
		c.Reason, c.Message = t.reason, t.fault
		if t.reason == reasonUnreachable && t.wasReady && t.now.Available { // it goes on answering for all we know
			c.Status = metav1.ConditionUnknown
		}
	case t.now.TransitionStatus == v1alpha1.InvalidSpec && !t.now.Available && f != nil:
		c.Reason, c.Message = string(f.Reason), f.Message
	case t.answers():
		c.Status, c.Reason = metav1.ConditionTrue, string(state)
		c.Message = map[v1beta1.ModelState]string{
			v1beta1.Loaded:  "The model is loaded.",
			v1beta1.Standby: "The model is in no pod at the moment. The next request loads it, and waits for it.",
			v1beta1.Loading: "The model is being loaded again. Requests wait for it.",
		}[state]
	case f != nil && (f.Reason != v1alpha1.ModelLoadFailed || state == v1beta1.FailedToLoad):
		c.Reason, c.Message = string(f.Reason), t.advice(f)
	default:
		c.Reason, c.Message = cmp.Or(string(state), string(v1beta1.Pending)), "The model is being loaded for the first time. Nothing needs to be done."
		if state != v1beta1.Loading {
			c.Status, c.Message = metav1.ConditionUnknown, "The mesh has been told of the model. Nothing needs to be done."
		}
	}
	return c
}

// answers tells whether requests are answered. A model that is loaded answers although the one that is to take its place
// has no pod yet; and one that was loaded before answers once it is again.
func (t *task) answers() bool {
	state := t.now.ActiveModelState
	if state == v1beta1.Loaded || state == v1beta1.Standby {
		return t.now.Available || t.now.TargetModelState != "" && len(t.seen.Mesh.Addresses) > 0
	}
	return t.now.Available && t.wasReady && state == v1beta1.Loading
}

// advice is a failure with what to do about it.
func (t *task) advice(f *v1alpha1.PredictorFailure) string {
	namespace := t.seen.Mesh.Namespace
	switch f.Reason {
	case v1alpha1.RuntimeUnhealthy:
		return fmt.Sprintf("%s. Look at the Deployments of runtimes in namespace %s; they have the label modelmesh-service=%s. The model has the type %s.",
			f.Message, namespace, t.seen.Platform.Service, t.model.Type)
	case v1alpha1.RuntimeNotRecognized:
		return fmt.Sprintf("There is no multi-model runtime for %s in namespace %s. Correct the runtime's name, or create it.", t.model.Type, namespace)
	case v1alpha1.NoSupportingRuntime:
		return fmt.Sprintf("No runtime of namespace %s serves models of type %s. Correct the model's type and protocol, or add a multi-model runtime that has "+
			"the format with autoSelect: true.", namespace, t.model.Type)
	case v1alpha1.ModelLoadFailed:
		where := ""
		if f.Location != "" {
			where = " in " + f.Location
		}
		return fmt.Sprintf("The model does not load%s: %s. Check its path, its storage key and its format.", where, strings.TrimRight(cmp.Or(f.Message, "no reason is given"), ". "))
	}
	return f.Message
}

// latest says whether what answers is what was asked for last.
func (t *task) latest(ready kube.Condition) kube.Condition {
	c := kube.Condition{Type: ConditionLatest, Status: ready.Status, Reason: ready.Reason, Message: ready.Message}
	goesOn := ""
	if ready.Status == metav1.ConditionTrue {
		goesOn = " The model before it goes on answering."
	}
	switch f := t.now.LastFailureInfo; t.now.TransitionStatus {
	case v1alpha1.InProgress:
		if t.now.TargetModelState != "" {
			c.Status, c.Reason = metav1.ConditionUnknown, string(v1alpha1.InProgress)
			c.Message = "The new model is being loaded." + goesOn
		}
	case v1alpha1.BlockedByFailedLoad:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(v1alpha1.BlockedByFailedLoad), "The new model does not load."+goesOn
		if f != nil {
			c.Message = strings.Replace(t.advice(f), "The model does", "The new model does", 1) + goesOn
		}
	case v1alpha1.InvalidSpec:
		if f != nil {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(v1alpha1.InvalidPredictorSpec), f.Message+goesOn
		}
	}
	return c
}
