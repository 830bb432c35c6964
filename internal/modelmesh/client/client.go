// SPDX-License-Identifier: Apache-2.0

// Package client is the control plane's way to the mesh: it asks for models over gRPC, hears from etcd what became of them,
// and remembers both until the next question. It is what the engine calls for Predictors and InferenceServices, and what
// wakes them.
//
// It decides nothing: which question is due is for a plan to say. What it remembers is gone with the process, and every
// question may be asked twice.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelmesh/model"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// The calls, as the engine counts them.
const (
	CallSet    = "set-model"
	CallStatus = "model-status"
	CallDelete = "delete-model"
	CallLeave  = "leave-mesh"
)

// Timeout of a call.
const Timeout = 10 * time.Second

// Question is what the mesh is asked for an object, and the request of every call.
type Question struct {
	Mesh  Mesh
	Model model.Model
	// Load says that the model is wanted now, not only when it is used.
	Load bool
	// After is the revision of the records that made the question necessary, and Attempt the number of a question that is
	// asked because time has passed. They tell a new question from the one before.
	After   int64
	Attempt int
	// Since is the number of the answer that the question follows. The same question after another answer is a new one.
	Since int64
}

// String says what the mesh is asked, for people.
func (q Question) String() string {
	text := fmt.Sprintf("%s in namespace %s: %s", q.Mesh.Service, q.Mesh.Namespace, q.Model.Name)
	if q.Model.ID != "" {
		text += fmt.Sprintf(" as model %s of type %s at %q", q.Model.ID, q.Model.Type, q.Model.Path)
	}
	return text
}

// Answer is the last that the mesh said of an object.
type Answer struct {
	// ID of the model that was asked for; empty if only the state was.
	ID string
	// Status is what it said. Taken says instead that the name belongs to another kind of object.
	Status *wire.VModelStatusInfo
	Taken  bool
	// After and Attempt are those of the question, or the revision that the records had reached; At is when it was said.
	After   int64
	Attempt int
	At      time.Time
	// Pods tells the pods that were there from those that are there later.
	Pods string
	// Number tells answers apart, and the moment when the mesh forgot what it had said.
	Number int64
}

// who is an object that a model comes from.
type who struct {
	types.NamespacedName
	source model.Source
}

// Client is the one way to all meshes.
type Client struct {
	now func() time.Time
	// dial is another way to addresses, for tests.
	dial dialer

	mu      sync.Mutex
	number  int64
	answers map[who]Answer
	meshes  map[string]*connection // by namespace
	wakers  map[model.Source]func(types.NamespacedName)

	watch *watch
}

// New is a client that knows no mesh yet.
func New() *Client {
	c := &Client{now: time.Now, answers: map[who]Answer{}, meshes: map[string]*connection{}, wakers: map[model.Source]func(types.NamespacedName){}}
	c.watch = newWatch(c.wake)
	c.watch.lost = c.lost
	return c
}

// DialWith takes another way to addresses, for tests. It is called before the first call.
func (c *Client) DialWith(dial func(ctx context.Context, address string) (net.Conn, error)) {
	c.dial = dial
}

// Last is what the mesh said last of an object, if it said anything since the process began that still holds.
func (c *Client) Last(source model.Source, of types.NamespacedName) (Answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.answers[who{of, source}]
	return a, a.Status != nil || a.Taken
}

// View is what the records say of an object's model now.
func (c *Client) View(source model.Source, of types.NamespacedName) View {
	return c.watch.view(source, of)
}

// Told tells whether a mesh says in its records when a load has ended, and they are being watched. Otherwise somebody has to
// ask.
func (c *Client) Told(namespace string) bool { return c.watch.told(namespace) }

// Executor makes the calls for objects of one kind.
func (c *Client) Executor(source model.Source) engine.Executor {
	return func(ctx context.Context, of types.NamespacedName, call engine.Call) (any, error) {
		q, ok := call.Request.(Question)
		if !ok {
			return nil, fmt.Errorf("the call %s has no question", call.Name)
		}
		if q.Mesh.Etcd != nil && !q.Mesh.Alone {
			c.watch.follow(q.Mesh.Etcd)
		}
		switch call.Name {
		case CallSet:
			return nil, c.set(ctx, who{of, source}, q)
		case CallStatus:
			return nil, c.status(ctx, who{of, source}, q)
		case CallDelete:
			return nil, c.remove(ctx, who{of, source}, q)
		case CallLeave:
			c.leave(q.Mesh.Namespace)
			return nil, nil
		}
		return nil, fmt.Errorf("there is no call %s", call.Name)
	}
}

// Source wakes objects of one kind when records of their models change. That of Predictors also keeps the watch going.
func (c *Client) Source(source model.Source) engine.EventSource {
	return func(ctx context.Context, wake func(types.NamespacedName)) error {
		c.mu.Lock()
		c.wakers[source] = wake
		c.mu.Unlock()
		if source == model.FromPredictor {
			return c.watch.run(ctx)
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

func (c *Client) wake(w who) {
	c.mu.Lock()
	wake := c.wakers[w.source]
	c.mu.Unlock()
	if wake != nil {
		wake(w.NamespacedName)
	}
}

// set points the object's name at its model. The same once more changes nothing in the mesh.
func (c *Client) set(ctx context.Context, w who, q Question) error {
	after := max(q.After, c.watch.view(w.source, w.NamespacedName).Revision)
	info, err := c.ask(ctx, q.Mesh, func(ctx context.Context, mesh wire.ModelMeshClient) (*wire.VModelStatusInfo, error) {
		return mesh.SetVModel(ctx, &wire.SetVModelRequest{
			VModelId: q.Model.Name, Owner: string(w.source), TargetModelId: q.Model.ID, AutoDeleteTargetModel: true, LoadNow: q.Load,
			ModelInfo: &wire.ModelInfo{Type: q.Model.Type, Path: q.Model.Path, Key: q.Model.Key},
		})
	})
	a := Answer{ID: q.Model.ID, Status: info, After: after, Attempt: q.Attempt, Pods: q.Mesh.Pods()}
	if status.Code(err) == codes.AlreadyExists {
		a.Taken, err = true, nil
	}
	if err != nil {
		return worded(err, q.Mesh)
	}
	return c.note(ctx, w, a)
}

// status asks how the model is.
func (c *Client) status(ctx context.Context, w who, q Question) error {
	after := max(q.After, c.watch.view(w.source, w.NamespacedName).Revision)
	info, err := c.ask(ctx, q.Mesh, func(ctx context.Context, mesh wire.ModelMeshClient) (*wire.VModelStatusInfo, error) {
		return mesh.GetVModelStatus(ctx, &wire.GetVModelStatusRequest{VModelId: q.Model.Name, Owner: string(w.source)})
	})
	if err != nil {
		return worded(err, q.Mesh)
	}
	a := Answer{ID: q.Model.ID, Status: info, After: after, Attempt: q.Attempt, Pods: q.Mesh.Pods()}
	if info.GetStatus() == wire.VModelStatusInfo_NOT_FOUND {
		a.ID = "" // to be asked for again
	}
	return c.note(ctx, w, a)
}

// remove takes the object's name out of the mesh: by asking it, or where nobody is there to ask, in its records.
func (c *Client) remove(ctx context.Context, w who, q Question) error {
	var err error
	switch {
	case len(q.Mesh.Addresses) > 0:
		_, err = c.ask(ctx, q.Mesh, func(ctx context.Context, mesh wire.ModelMeshClient) (*wire.VModelStatusInfo, error) {
			_, err := mesh.DeleteVModel(ctx, &wire.DeleteVModelRequest{VModelId: q.Model.Name, Owner: string(w.source)})
			return nil, err
		})
		err = worded(err, q.Mesh)
	case q.Mesh.Etcd != nil:
		err = removeRecords(ctx, q.Mesh, q.Model.Name, w.source)
	}
	if err == nil {
		c.forget(w)
	}
	return err
}

// forget an object that is no more.
func (c *Client) forget(w who) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.answers, w)
}

// lost says that what the mesh said of an object no longer holds, because it does not know it any more: it is asked for again.
func (c *Client) lost(w who) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, said := c.answers[w]; said {
		c.number++
		c.answers[w] = Answer{Number: c.number}
	}
}

// note keeps an answer, unless the question was withdrawn meanwhile: a later one may have been answered already.
func (c *Client) note(ctx context.Context, w who, a Answer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	c.number++
	a.At, a.Number = c.now(), c.number
	c.answers[w] = a
	return nil
}

func (c *Client) ask(ctx context.Context, m Mesh, question func(context.Context, wire.ModelMeshClient) (*wire.VModelStatusInfo, error)) (*wire.VModelStatusInfo, error) {
	conn, err := c.connect(m)
	if err != nil {
		return nil, err
	}
	info, err := question(ctx, wire.NewModelMeshClient(conn))
	if err != nil {
		return nil, err
	}
	return bounded(info), nil
}

// mostText bounds what is kept of a message that a runtime made up.
const mostText = 1 << 10

// bounded keeps of an answer what is used of it.
func bounded(info *wire.VModelStatusInfo) *wire.VModelStatusInfo {
	if info == nil {
		return nil
	}
	out := proto.CloneOf(info)
	for _, s := range []*wire.ModelStatusInfo{out.GetActiveModelStatus(), out.GetTargetModelStatus()} {
		if s == nil {
			continue
		}
		s.Errors = s.Errors[:min(len(s.Errors), 1)]
		for i, text := range s.Errors {
			s.Errors[i] = clean(text)
		}
	}
	return out
}

// clean makes one line of at most so many bytes of a text, which stays text.
func clean(text string) string {
	out := make([]rune, 0, min(len(text), mostText))
	size := 0
	for _, r := range text {
		if r < ' ' {
			r = ' '
		}
		if size += len(string(r)); size > mostText {
			return string(out) + " …"
		}
		out = append(out, r)
	}
	return string(out)
}

// worded says why a mesh did not answer, in words that stay the same as long as the reason does.
func worded(err error, m Mesh) error {
	if err == nil {
		return nil
	}
	where := "The mesh " + m.Service + " in namespace " + m.Namespace
	switch status.Code(err) {
	case codes.Unavailable:
		return errors.New(where + " does not answer. Check that its pods run, and the network and the certificates between them and the manager.")
	case codes.DeadlineExceeded, codes.Canceled:
		return errors.New(where + " did not answer within " + Timeout.String() + ". Look at the logs of its pods.")
	case codes.Unimplemented:
		return errors.New(where + " does not know the question. Check that its pods run a mesh.")
	}
	return errors.New(where + " refuses: " + clean(status.Convert(err).Message()) + " (" + status.Code(err).String() + "). Look at the logs of its pods.")
}
