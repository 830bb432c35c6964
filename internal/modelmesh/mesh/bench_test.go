// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// BenchmarkCall compares calls of a runtime with the same calls through the instance beside it and through another one.
func BenchmarkCall(b *testing.B) {
	c := newCluster(b, false)
	pods := c.start("pod-a", "pod-b")
	pods[0].register("one", "", "", true, true)
	owner, other := pods[0], pods[1]
	if owner.mustCall("one") == other.name {
		owner, other = other, owner
	}
	direct, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", owner.runtimePort), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newRawCodec())))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = direct.Close() }()
	for _, way := range []struct {
		name string
		conn *grpc.ClientConn
	}{{"direct", direct}, {"beside", owner.conn}, {"forwarded", other.conn}} {
		b.Run(way.name, func(b *testing.B) {
			ctx := metadata.AppendToOutgoingContext(context.Background(), "mm-model-id", "one")
			message := newFrame(make([]byte, 1024))
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				began := time.Now()
				var got frame
				if err := way.conn.Invoke(ctx, "/test.Model/Call", message, &got); err != nil {
					b.Fatal(err)
				}
				got.free()
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}
