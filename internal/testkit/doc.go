// SPDX-License-Identifier: Apache-2.0

// Package testkit puts a real API server under every test, and instruments to
// look at what passes between a controller and that server: request counters,
// faults, a cut wire, a watcher that reports conditions that lie.
//
// A test binary shares one kube-apiserver and etcd between all its tests; a
// test keeps to a namespace of its own:
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
//	func TestIt(t *testing.T) {
//		cluster := testkit.Start(t)
//		namespace := cluster.Namespace(t)
//		…
//	}
//
// What a test starts besides, it starts with package guard, or with RunProgram,
// which does: it ends with the test process however that ends.
//
// The package knows Kubernetes and nothing of Modelplane: it must not import the
// engine or any domain, so that every room can be tested with it. Nothing but
// tests and benchmarks may import it.
package testkit
