// SPDX-License-Identifier: Apache-2.0

// Package process is what every long-running program of ours stands on, whatever it does: signals and an orderly end,
// logs, TLS with certificates that are read again, HTTP servers with bounds, health, metrics for those who may, profiles
// and the version. It knows no domain and no Kubernetes: nothing of k8s.io, controller-runtime or klog is imported here,
// because programs that run once per pod stand on it as well (cmd/modelplane-pod).
//
// A server (the registry, maas-api, the mesh) lives in its domain's room and gives its handlers to a Program:
//
//	ctx, stop := process.UntilSignal(ctx)
//	defer stop()
//	certificate, err := process.LoadCertificate(dir, log)
//	…
//	return process.Program{
//		Log:     log,
//		Servers: []process.Server{{Name: "api", Address: ":8443", Handler: api, TLS: process.TLS(certificate.Get)}},
//		Aside: []process.Server{
//			{Name: "health", Address: ":8081", Handler: health.Handler(log)},
//			{Name: "metrics", Address: ":9443", Handler: process.Metrics(registry, mayScrape, log), TLS: …},
//			{Name: "profiling", Address: profiling, Handler: profiles.Handler(), Limits: process.Limits{Write: -1}},
//		},
//		Delay: 5 * time.Second, Timeout: 25 * time.Second,
//	}.Run(ctx)
//
// Who may scrape is the caller's to say, as a function: the manager asks the API server, a program without a Kubernetes
// client has a token in a file or leaves the endpoint to loopback. The manager's servers are started and stopped by
// controller-runtime, in its own order; it takes the parts of them from here.
package process
