// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"slices"
	"strings"
	"unique"
)

// Copy is a model in an instance: since when it is being loaded there, and since when it is loaded (0 while it is not, or
// when the instance does not tell). Times are milliseconds since 1970.
type Copy struct {
	Instance string
	Began    int64
	Loaded   int64
}

// Failure is a load that failed in an instance.
type Failure struct {
	Instance string
	At       int64
	Message  string
}

// Model is a record of the registry. A hundred thousand of them are held by every process, so what many have in common is
// stored once and the JSON is not kept.
type Model struct {
	typ, key unique.Handle[string]
	Path     string
	Copies   []Copy    // by instance
	Failures []Failure // by instance
	// Refs counts virtual models; AutoDelete removes the model with the last of them.
	Refs       int
	AutoDelete bool
	LastUsed   int64
	LastUnload int64
	// Size is what the model took where it was loaded last, in units; 0 when nobody knows.
	Size int64
	// Kills is how many runtimes ended while they loaded the model since it was loaded last, KilledIn the instance of the latest
	// and KilledAt when that was, in milliseconds.
	Kills    int
	KilledIn string
	KilledAt int64
	unknown  string // members that we do not understand, as JSON; empty when there are none
}

// NewModel is one that nobody has loaded.
func NewModel(typ, path, key string) *Model {
	return &Model{typ: unique.Make(typ), key: unique.Make(key), Path: path}
}

// Type is what placement goes by.
func (m *Model) Type() string { return text(m.typ) }

// Key is handed to the runtime as it is.
func (m *Model) Key() string { return text(m.key) }

func text(h unique.Handle[string]) string {
	if h == (unique.Handle[string]{}) {
		return ""
	}
	return h.Value()
}

// Same tells whether a registration describes this model.
func (m *Model) Same(typ, path, key string) bool {
	return m.Type() == typ && m.Path == path && m.Key() == key
}

// Clone is a record that may be changed.
func (m *Model) Clone() *Model {
	out := *m
	out.Copies, out.Failures = slices.Clone(m.Copies), slices.Clone(m.Failures)
	return &out
}

// Copy finds the copy in an instance.
func (m *Model) Copy(instance string) (Copy, bool) {
	for _, c := range m.Copies {
		if c.Instance == instance {
			return c, true
		}
	}
	return Copy{}, false
}

// SetCopy adds or replaces the copy of an instance, and forgets that it failed there.
func (m *Model) SetCopy(c Copy) {
	m.RemoveCopy(c.Instance)
	m.RemoveFailure(c.Instance)
	m.Copies = append(m.Copies, c)
	slices.SortFunc(m.Copies, func(a, b Copy) int { return strings.Compare(a.Instance, b.Instance) })
}

// RemoveCopy tells whether there was one.
func (m *Model) RemoveCopy(instance string) bool {
	before := len(m.Copies)
	m.Copies = slices.DeleteFunc(m.Copies, func(c Copy) bool { return c.Instance == instance })
	return len(m.Copies) != before
}

// SetFailure says that loading failed in an instance; there is then no copy.
func (m *Model) SetFailure(f Failure) {
	m.RemoveCopy(f.Instance)
	m.RemoveFailure(f.Instance)
	m.Failures = append(m.Failures, f)
	slices.SortFunc(m.Failures, func(a, b Failure) int { return strings.Compare(a.Instance, b.Instance) })
}

// FailedIn tells whether loading failed in an instance, however long ago.
func (m *Model) FailedIn(instance string) bool {
	return slices.ContainsFunc(m.Failures, func(f Failure) bool { return f.Instance == instance })
}

// RemoveFailure tells whether there was one.
func (m *Model) RemoveFailure(instance string) bool {
	before := len(m.Failures)
	m.Failures = slices.DeleteFunc(m.Failures, func(f Failure) bool { return f.Instance == instance })
	return len(m.Failures) != before
}

// Killed says that the runtime of an instance ended while it loaded the model. It tells whether that is news.
func (m *Model) Killed(instance string, at int64) bool {
	if m.KilledIn == instance && m.KilledAt == at {
		return false
	}
	m.Kills, m.KilledIn, m.KilledAt = m.Kills+1, instance, at
	return true
}

// Acquit forgets the runtimes that have ended. It tells whether there were any.
func (m *Model) Acquit() bool {
	before := m.Kills
	m.Kills, m.KilledIn, m.KilledAt = 0, "", 0
	return before != 0
}

// noType is the type of records that were written before there were types.
const noType = "NLCLASSIFIER"

type modelJSON struct {
	Type        string                 `json:"type,omitempty"`
	Key         string                 `json:"encKey,omitempty"`
	Path        string                 `json:"mPath,omitempty"`
	InstanceIDs map[string]int64       `json:"instanceIds,omitempty"`
	LoadedIn    map[string]int64       `json:"loadedIn,omitempty"`
	FailedIn    map[string]int64       `json:"failedIn,omitempty"`
	Fails       map[string]failureJSON `json:"fails,omitempty"`
	Refs        int                    `json:"refs,omitempty"`
	AutoDelete  bool                   `json:"autoDel,omitempty"`
	LastUsed    int64                  `json:"lu,omitempty"`
	LastUnload  int64                  `json:"lul,omitempty"`
	Size        int64                  `json:"size,omitempty"`
	Kills       int                    `json:"kills,omitempty"`
	KilledIn    string                 `json:"killIn,omitempty"`
	KilledAt    int64                  `json:"killAt,omitempty"`
}

type failureJSON struct {
	Message string `json:"msg,omitempty"`
}

var modelMembers = []string{"type", "encKey", "mPath", "instanceIds", "loadedIn", "failedIn", "fails", "refs", "autoDel", "lu", "lul", "size", "kills", "killIn", "killAt"}

// ModelCodec is how models look in etcd. loadedIn, size and those of runtimes that ended are ours; whoever does not know them keeps them.
var ModelCodec = Codec[Model]{Decode: decodeModel, Encode: encodeModel}

func decodeModel(raw []byte) (*Model, error) {
	var j modelJSON
	if err := json.Unmarshal(raw, &j); err != nil {
		return nil, err
	}
	if j.Type == "" {
		j.Type = noType
	}
	m := NewModel(j.Type, j.Path, j.Key)
	m.Refs, m.AutoDelete, m.LastUsed, m.LastUnload, m.Size = j.Refs, j.AutoDelete, j.LastUsed, j.LastUnload, j.Size
	m.Kills, m.KilledIn, m.KilledAt = j.Kills, intern(j.KilledIn), j.KilledAt
	m.unknown = rest(raw, modelMembers)
	for id, began := range j.InstanceIDs {
		m.Copies = append(m.Copies, Copy{intern(id), began, j.LoadedIn[id]})
	}
	slices.SortFunc(m.Copies, func(a, b Copy) int { return strings.Compare(a.Instance, b.Instance) })
	for id, at := range j.FailedIn {
		m.Failures = append(m.Failures, Failure{intern(id), at, j.Fails[id].Message})
	}
	slices.SortFunc(m.Failures, func(a, b Failure) int { return strings.Compare(a.Instance, b.Instance) })
	return m, nil
}

// intern stores the ids of instances once, however many models name them.
func intern(s string) string { return unique.Make(s).Value() }

func encodeModel(m *Model) ([]byte, error) {
	j := modelJSON{
		Type: m.Type(), Key: m.Key(), Path: m.Path, Refs: m.Refs, AutoDelete: m.AutoDelete,
		LastUsed: m.LastUsed, LastUnload: m.LastUnload, Size: m.Size, Kills: m.Kills, KilledIn: m.KilledIn, KilledAt: m.KilledAt,
	}
	if j.Type == noType {
		j.Type = ""
	}
	for _, c := range m.Copies {
		put(&j.InstanceIDs, c.Instance, c.Began)
		if c.Loaded != 0 {
			put(&j.LoadedIn, c.Instance, c.Loaded)
		}
	}
	for _, f := range m.Failures {
		put(&j.FailedIn, f.Instance, f.At)
		if f.Message != "" {
			put(&j.Fails, f.Instance, failureJSON{f.Message})
		}
	}
	return encode(j, m.unknown)
}

func put[V any](into *map[string]V, key string, value V) {
	if *into == nil {
		*into = map[string]V{}
	}
	(*into)[key] = value
}

// VModel is a name that leads to a model.
type VModel struct {
	Owner          string
	Active, Target string
	Failed         bool
	unknown        string
}

// Clone is a record that may be changed.
func (v *VModel) Clone() *VModel { out := *v; return &out }

// Moving tells whether the target has yet to take over.
func (v *VModel) Moving() bool { return v.Target != "" && v.Active != v.Target }

type vmodelJSON struct {
	Owner  string `json:"o,omitempty"`
	Active string `json:"amid,omitempty"`
	Target string `json:"tmid,omitempty"`
	Failed bool   `json:"failed,omitempty"`
}

// VModelCodec is how virtual models look in etcd.
var VModelCodec = Codec[VModel]{
	Decode: func(raw []byte) (*VModel, error) {
		var j vmodelJSON
		if err := json.Unmarshal(raw, &j); err != nil {
			return nil, err
		}
		return &VModel{intern(j.Owner), j.Active, j.Target, j.Failed, rest(raw, []string{"o", "amid", "tmid", "failed"})}, nil
	},
	Encode: func(v *VModel) ([]byte, error) {
		return encode(vmodelJSON{v.Owner, v.Active, v.Target, v.Failed}, v.unknown)
	},
}

// Instance is one process of the mesh, as the others see it. Capacity and Used are in units of 8 KiB.
type Instance struct {
	LRU         int64    `json:"lruTime,omitempty"` // when the model was last used that would go first
	Count       int      `json:"count,omitempty"`
	Capacity    int64    `json:"cap,omitempty"`
	Used        int64    `json:"used,omitempty"`
	LoadThreads int      `json:"lThreads,omitempty"`
	Loading     int      `json:"lInProg,omitempty"`
	RPM         int64    `json:"rpm,omitempty"`
	Shutdown    bool     `json:"shutdown,omitempty"`
	Started     int64    `json:"startTime,omitempty"`
	Version     int64    `json:"vers,omitempty"`
	Location    string   `json:"loc,omitempty"`
	Zone        string   `json:"zone,omitempty"`
	Labels      []string `json:"labels,omitempty"`
	// Address is where peers reach it.
	Address string `json:"addr,omitempty"`
}

// InstanceCodec is how instances look in etcd.
var InstanceCodec = Codec[Instance]{
	Decode: func(raw []byte) (*Instance, error) {
		i := &Instance{}
		return i, json.Unmarshal(raw, i)
	},
	Encode: func(i *Instance) ([]byte, error) { return json.Marshal(i) },
}

// TextCodec is for settings, which are plain words.
var TextCodec = Codec[string]{
	Decode: func(raw []byte) (*string, error) { s := string(raw); return &s, nil },
	Encode: func(s *string) ([]byte, error) { return []byte(*s), nil },
}

// rest are the members of an object that are not known, as an object; empty when there are none.
func rest(raw []byte, known []string) string {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return ""
	}
	for _, name := range known {
		delete(all, name)
	}
	if len(all) == 0 {
		return ""
	}
	out, err := json.Marshal(all)
	if err != nil {
		return ""
	}
	return string(out)
}

// encode puts unknown members back.
func encode(known any, unknown string) ([]byte, error) {
	raw, err := json.Marshal(known)
	if err != nil || unknown == "" {
		return raw, err
	}
	if len(raw) == len("{}") {
		return []byte(unknown), nil
	}
	return append(append(raw[:len(raw)-1], ','), unknown[1:]...), nil
}
