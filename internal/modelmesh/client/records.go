// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelplane/modelplane/internal/modelmesh/model"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// View is what the records of a mesh say of one object's name.
type View struct {
	// Revision is that of the newest record; 0 if there is none, or none is known yet.
	Revision int64
	// Owner is the kind of object that has the name.
	Owner model.Source
	// Active answers requests, and Target is to take its place; Failed says that it could not.
	Active, Target string
	Failed         bool
	// ActiveCopies and TargetCopies are those of the two models.
	ActiveCopies, TargetCopies Copies
}

// Copies are those of one model.
type Copies struct {
	// Total are in pods, loaded or not; Loaded are known to be loaded.
	Total, Loaded int
	// Failed is in how many pods the model did not load, and FailedAt when that was last, in milliseconds since 1970.
	Failed   int
	FailedAt int64
}

// Fits tells whether an answer of the mesh says what the records do, as far as anybody is told of it. How many copies are on
// their way is of no interest as long as none has arrived.
func (v View) Fits(info *wire.VModelStatusInfo) bool {
	if v.Active != info.GetActiveModelId() || v.Target != info.GetTargetModelId() {
		return false
	}
	if v.Failed != (info.GetStatus() == wire.VModelStatusInfo_TRANSITION_FAILED) {
		return false
	}
	return v.ActiveCopies.fit(info.GetActiveModelStatus()) && (v.Active == v.Target || v.TargetCopies.fit(info.GetTargetModelStatus()))
}

func (c Copies) fit(info *wire.ModelStatusInfo) bool {
	said := Copies{}
	for _, one := range info.GetModelCopyInfos() {
		if one.GetCopyStatus() == wire.ModelStatusInfo_LOADING_FAILED {
			said.Failed++
			said.FailedAt = max(said.FailedAt, int64(one.GetTime())) //nolint:gosec // a time
			continue
		}
		said.Total++
	}
	switch info.GetStatus() {
	case wire.ModelStatusInfo_LOADING:
		return c.Loaded == 0 && c.Failed == said.Failed
	case wire.ModelStatusInfo_LOADED:
		return c.Total == said.Total && c.Failed == said.Failed
	case wire.ModelStatusInfo_LOADING_FAILED:
		return c.Total == 0 && (c.Failed == said.Failed && c.FailedAt == said.FailedAt || c.Failed == 0)
	}
	return c.Total == 0 && c.Failed == 0
}

// vmodelRecord is a name, as it is in etcd.
type vmodelRecord struct {
	Owner    model.Source `json:"o"`
	Active   string       `json:"amid"`
	Target   string       `json:"tmid"`
	Failed   bool         `json:"failed"`
	revision int64
}

// modelRecord is a model, as it is in etcd, with what concerns its copies.
type modelRecord struct {
	Instances map[string]int64 `json:"instanceIds"`
	Loaded    map[string]int64 `json:"loadedIn"` // only our own mesh tells
	Failed    map[string]int64 `json:"failedIn"`
}

func (r modelRecord) copies() Copies {
	c := Copies{Total: len(r.Instances), Failed: len(r.Failed)}
	for id := range r.Instances {
		if r.Loaded[id] != 0 {
			c.Loaded++
		}
	}
	for _, at := range r.Failed {
		c.FailedAt = max(c.FailedAt, at)
	}
	return c
}

// counted are the copies of a model at a revision.
type counted struct {
	Copies
	revision int64
}

// records mirror what concerns objects of ours. They are kept small: there may be many.
type records struct {
	mu     sync.Mutex
	names  map[types.NamespacedName]vmodelRecord
	models map[types.NamespacedName]counted // by their ids
	// telling are the namespaces whose mesh says when a load has ended.
	telling map[string]bool
}

func newRecords() *records {
	return &records{names: map[types.NamespacedName]vmodelRecord{}, models: map[types.NamespacedName]counted{}, telling: map[string]bool{}}
}

func (r *records) view(source model.Source, of types.NamespacedName) View {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.names[of]
	if !ok {
		return View{}
	}
	v := View{Revision: n.revision, Owner: n.Owner}
	if n.Owner != source {
		return v
	}
	active, target := r.models[types.NamespacedName{Namespace: of.Namespace, Name: n.Active}], r.models[types.NamespacedName{Namespace: of.Namespace, Name: n.Target}]
	v.Active, v.Target, v.Failed, v.ActiveCopies, v.TargetCopies = n.Active, n.Target, n.Failed, active.Copies, target.Copies
	v.Revision = max(v.Revision, active.revision, target.revision)
	return v
}

// put takes a record over and tells whose model it is of, if that changes anything for them.
func (r *records) put(namespace, table, id string, value []byte, revision int64) []who {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: id}
	switch table {
	case vmodels:
		next := vmodelRecord{}
		if json.Unmarshal(value, &next) != nil {
			return nil // somebody else's
		}
		before := r.names[key]
		next.revision = revision
		r.names[key] = next
		if before.revision = revision; before == next {
			return nil
		}
		return concerned(key, before.Owner, next.Owner)
	case registry:
		return r.putModel(key, value, revision)
	}
	return nil
}

func (r *records) putModel(key types.NamespacedName, value []byte, revision int64) []who {
	name, source, ours := model.ParseID(key.Name)
	record := modelRecord{}
	if !ours || json.Unmarshal(value, &record) != nil {
		return nil
	}
	before, next := r.models[key], counted{record.copies(), revision}
	if len(record.Loaded) > 0 {
		r.telling[key.Namespace] = true
	}
	if before.Copies == next.Copies && before.revision != 0 {
		return nil // only when it was last used, or the like
	}
	r.models[key] = next
	return concerned(types.NamespacedName{Namespace: key.Namespace, Name: name}, source)
}

// remove forgets a record. The mesh knows nothing any more of the names that it returns.
func (r *records) remove(namespace, table, id string) []who {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: id}
	if table == registry {
		delete(r.models, key)
	}
	if _, had := r.names[key]; table != vmodels || !had {
		return nil
	}
	delete(r.names, key)
	return concerned(key, model.FromPredictor, model.FromService) // the name is free, for whoever was refused it
}

// concerned are the objects that a name belongs to, or did.
func concerned(key types.NamespacedName, owners ...model.Source) []who {
	var out []who
	for i, source := range owners {
		if source != "" && (i == 0 || source != owners[0]) {
			out = append(out, who{key, source})
		}
	}
	return out
}
