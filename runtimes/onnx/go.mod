module github.com/modelplane/modelplane/runtimes/onnx

go 1.26.0

toolchain go1.26.8

// The server is built with the checkout that it is in.
replace github.com/modelplane/modelplane => ../..

require (
	github.com/google/go-cmp v0.7.0
	github.com/modelplane/modelplane v0.0.0-00010101000000-000000000000
	github.com/prometheus/client_golang v1.25.0
	github.com/yalue/onnxruntime_go v1.27.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260928230214-8a89bd6388cc // indirect
)
