// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Register serves the admission of every kind: a validating path for each and a
// mutating one where the kind has defaults. The server bounds the size of a
// request to what two objects of the largest size need. It fails when a kind is
// not in the scheme, which would only show at the first request otherwise.
func Register(server webhook.Server, scheme *runtime.Scheme, kinds ...Kind) error {
	paths := byVersion{}
	for _, k := range kinds {
		known, _, err := scheme.ObjectKinds(k.New())
		if err != nil {
			return fmt.Errorf("admission of %s: %w", k.GVK, err)
		}
		if !slices.Contains(known, k.GVK) {
			return fmt.Errorf("admission of %s: the scheme knows its type as %v", k.GVK, known)
		}
		paths.add(k.ValidatePath(), k, k.validate)
		if k.Default != nil {
			paths.add(k.MutatePath(), k, k.mutate)
		}
	}
	for path, handlers := range paths {
		server.Register(path, &admission.Webhook{Handler: handlers})
	}
	return nil
}

// byVersion are the paths that are served, and who answers there for which version.
type byVersion map[string]answers

type answers map[metav1.GroupVersionKind]admission.HandlerFunc

func (b byVersion) add(path string, k Kind, answer admission.HandlerFunc) {
	if b[path] == nil {
		b[path] = answers{}
	}
	b[path][metav1.GroupVersionKind(k.GVK)] = answer
}

// Handle lets the one answer who knows the version that the request is in. Where there is one only, the path says it all.
func (a answers) Handle(ctx context.Context, req admission.Request) admission.Response {
	if len(a) == 1 {
		for _, answer := range a {
			return answer(ctx, req)
		}
	}
	answer, ok := a[req.Kind]
	if !ok {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("unsupported resource %s", req.Kind.String()))
	}
	return answer(ctx, req)
}

// validate answers one request for the validating path.
func (k Kind) validate(ctx context.Context, req admission.Request) admission.Response {
	switch req.Operation {
	case admissionv1.Create, admissionv1.Update:
	case admissionv1.Delete:
		return k.validateDelete(ctx, req)
	default:
		return admission.Allowed("")
	}
	seen, refused := k.read(req)
	if refused != nil {
		return *refused
	}
	if seen.deleting() || k.Validate == nil {
		return admission.Allowed("").WithWarnings(seen.warnings...)
	}
	warnings, err := k.Validate(admission.NewContextWithRequest(ctx, req), seen.old, seen.object)
	return k.answer(req, append(seen.warnings, warnings...), err)
}

func (k Kind) validateDelete(ctx context.Context, req admission.Request) admission.Response {
	if k.ValidateDelete == nil || len(req.OldObject.Raw) == 0 {
		return admission.Allowed("")
	}
	old, err := inspect(req.OldObject.Raw, reflect.TypeOf(k.New()))
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	obj := k.New()
	if err := old.decode(obj); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	warnings, err := k.ValidateDelete(admission.NewContextWithRequest(ctx, req), obj)
	return k.answer(req, warnings, err)
}

// seen is a request's objects in their Go types.
type seen struct {
	object, old client.Object
	warnings    []string
}

// deleting is true for an object that is being deleted: nothing may keep its
// finalizers from being removed.
func (s *seen) deleting() bool { return s.object.GetDeletionTimestamp() != nil }

// read decodes the objects of a request strictly. A problem that the stored
// object already had becomes a warning; any other refuses the request.
func (k Kind) read(req admission.Request) (*seen, *admission.Response) {
	t := reflect.TypeOf(k.New())
	object, err := inspect(req.Object.Raw, t)
	if err != nil {
		return nil, refusal(apierrors.NewBadRequest(err.Error()))
	}
	out := &seen{object: k.New()}
	var before Problems
	if req.Operation == admissionv1.Update && len(req.OldObject.Raw) > 0 {
		// A stored object that cannot be read at all gives no excuse to the new one.
		if old, err := inspect(req.OldObject.Raw, t); err == nil {
			before, out.old = old.problems, k.New()
			if err := old.decode(out.old); err != nil {
				return nil, refusal(apierrors.NewBadRequest("the stored object: " + err.Error()))
			}
		}
	}
	if err := object.decode(out.object); err != nil {
		return nil, refusal(apierrors.NewBadRequest(err.Error()))
	}
	fresh, known := object.problems.since(before)
	if len(fresh) > 0 && !out.deleting() {
		return nil, refusal(fresh.status(k.GVK.GroupKind(), nameOf(req)))
	}
	for _, p := range known[:min(len(known), listed)] {
		out.warnings = append(out.warnings, p.String()+" (was there before this change; it has no effect)")
	}
	return out, nil
}

func nameOf(req admission.Request) string {
	if req.Name != "" {
		return req.Name
	}
	return "(generated name)"
}

func refusal(err *apierrors.StatusError) *admission.Response {
	status := err.Status()
	return &admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &status}}
}

// answer turns what a kind's own rule said into a response.
func (k Kind) answer(req admission.Request, warnings []string, err error) admission.Response {
	if err == nil {
		return admission.Allowed("").WithWarnings(warnings...)
	}
	var status *apierrors.StatusError
	if errors.As(k.Refusal(nameOf(req), err), &status) {
		return refusal(status).WithWarnings(warnings...)
	}
	return admission.Denied(err.Error()).WithWarnings(warnings...)
}

// Refusal puts what a rule said into the words that a client of the API server
// reads. Field errors become causes of an Invalid status; any other error stays
// as it is.
func (k Kind) Refusal(name string, err error) error {
	if fieldErrs := fieldErrors(err); len(fieldErrs) > 0 {
		return apierrors.NewInvalid(k.GVK.GroupKind(), name, fieldErrs)
	}
	return err
}

// fieldErrors finds the field errors in an error, unless other errors are mixed
// in, which must not get lost.
func fieldErrors(err error) field.ErrorList {
	all := []error{err}
	var many utilerrors.Aggregate
	if errors.As(err, &many) {
		all = many.Errors()
	}
	var out field.ErrorList
	for _, e := range all {
		var one *field.Error
		if !errors.As(e, &one) {
			return nil
		}
		out = append(out, one)
	}
	return out
}
