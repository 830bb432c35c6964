// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
)

// scales reads and writes how many pods a component is to have.
type scales struct {
	deployments appsv1.DeploymentsGetter
	metrics     *metrics
	log         *slog.Logger
}

// callTimeout bounds one question to the API server.
const callTimeout = 10 * time.Second

func (s *scales) read(ctx context.Context, t *target) (*autoscalingv1.Scale, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.deployments.Deployments(t.namespace).GetScale(ctx, t.name, metav1.GetOptions{})
}

// write sets the number of pods unless it is so already. Somebody who changed it since it was read is not overruled.
func (s *scales) write(ctx context.Context, t *target, seen *autoscalingv1.Scale, pods int32, why string) error {
	if seen.Spec.Replicas == pods {
		return nil
	}
	before := seen.Spec.Replicas
	wanted := seen.DeepCopy()
	wanted.Spec.Replicas = pods
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := s.deployments.Deployments(t.namespace).UpdateScale(ctx, t.name, wanted, metav1.UpdateOptions{FieldManager: "modelplane-activator"}); err != nil {
		return fmt.Errorf("set the number of pods of Deployment %s to %d: %w", t.key(), pods, err)
	}
	s.metrics.writes.WithLabelValues(t.namespace, t.name).Inc()
	s.log.Info("Scaled", "service", t.key(), "from", before, "to", pods, "because", why)
	return nil
}

// wake gives a service its first pod because requests wait. Every replica does this by itself: they must not wait for a
// leader.
func (s *scales) wake(t *target) {
	ctx := context.Background()
	seen, err := s.read(ctx, t)
	if err == nil && seen.Spec.Replicas == 0 {
		err = s.write(ctx, t, seen, max(t.scaling().Min, 1), "requests wait")
	}
	if err != nil && !apierrors.IsConflict(err) {
		s.log.Error("A service cannot be woken; it is tried again as long as requests wait", "service", t.key(), "err", err.Error())
	}
}
