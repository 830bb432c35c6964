// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type emptyReader struct{ client.Reader }

func (emptyReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

func TestReaderTravelsInTheContext(t *testing.T) {
	if r := ReaderFrom(t.Context()); r != nil {
		t.Errorf("a context that was given none has %v", r)
	}
	ctx := WithReader(t.Context(), FromClient(emptyReader{}))
	r := ReaderFrom(ctx)
	if r == nil {
		t.Fatal("the reader got lost")
	}
	if err := r.Get(ctx, client.ObjectKey{Name: "a"}, &corev1.ConfigMap{}); err != nil {
		t.Errorf("the client was not asked: %v", err)
	}
}
