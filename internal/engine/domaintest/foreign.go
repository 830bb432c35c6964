// SPDX-License-Identifier: Apache-2.0

package domaintest

import (
	"crypto/rand"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/internal/testkit"
)

// ForeignSecrets makes large Secrets that no controller has to do with. What it returns fails the test if the clients that are
// counted have read more than a fiftieth of them: what is not read is not in memory, nor was it ever.
func (b *Bench) ForeignSecrets(t testing.TB, counter *testkit.Counter) (unread func()) {
	t.Helper()
	const secrets, size, part = 10, 400 << 10, 50
	ns := b.Namespace(t)
	for i := range secrets {
		data := make([]byte, size)
		_, _ = rand.Read(data)
		b.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("foreign-%d", i)}, Data: map[string][]byte{"data": data}})
	}
	return func() {
		t.Helper()
		if read := counter.Read("secrets"); read == 0 || read > secrets*size/part {
			t.Errorf("%d bytes were read of Secrets; others have %d of %d bytes", read, secrets, size)
		}
	}
}
