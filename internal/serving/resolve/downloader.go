// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/storage"
)

// keepDownloader lets a component that runs go on with the downloader that its template has, where nothing else is new;
// see storage.Keep.
func (c *Component) keepDownloader(seen *observed.State) {
	live, was := seen.Downloader(c.Name)
	c.rest = storage.Keep(&c.Pod, live, was, c.Labels, c.Annotations)
}

// Mark notes on the object that runs the component, beside its template, what keepDownloader decides by the next time.
func (c *Component) Mark(object client.Object) {
	if c.rest == "" {
		return
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[storage.AnnotationRest] = c.rest
	object.SetAnnotations(annotations)
}
