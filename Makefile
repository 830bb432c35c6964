# Everything a target needs is built or fetched by the target itself; the only thing to install is Go.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO ?= go
# One set of build settings for every program, test and check, so that a package which several of them use is compiled
# once. The modules keep the same versions of what they have in common for the same reason.
export CGO_ENABLED ?= 0
export GOFLAGS := -trimpath -buildvcs=false
# Test binaries are linked anew whenever something changed; without debugging data that takes half the time.
TESTLINK := -vet=off -ldflags=-w
# Passed on to go test, for example TESTFLAGS='-run TestPlan -v' or TESTFLAGS=-race.
TESTFLAGS ?=
# How many test packages run at once. Each may start an API server of its own, and waits for it more than it computes.
TESTJOBS ?= $(shell echo $$((3 * $$(nproc))))
# Packages whose tests take longest. They begin first, the longest before all, so that none of them is waited for alone at the end.
SLOW := $(addprefix ./,test/packaging test/serving internal/maas internal/mlflow test/engine internal/serving bench/serving bench/modelmesh hack/image internal/maas/external internal/serving/graphs internal/serving/trainedmodels)
# Packages in which many things happen at once. With RACE=1 they are tested with the race detector instead of without.
RACY := $(addprefix ./internal/,engine/... testkit/... process/... manager/... certs/... admission/... fetch/... modelmesh/mesh/... modelmesh/puller modelmesh/rest openinference modelregistry/catalog/... modelregistry/server modelregistry/server/entity modelregistry/server/filter serving/agent/... serving/router serving/qpext maas/quota maas/enforce maas/metering)
RACE ?=
# For each fuzz target.
FUZZTIME ?= 30s
# A commit: fuzz only what has changed since then. Everything if empty.
FUZZSINCE ?=
# Seconds of fuzzing in all: each target gets its share, at most FUZZTIME and at least 5 s. No limit if empty.
FUZZBUDGET ?=
# The numbers of InferenceServices that are measured, one run each.
BENCHSERVICES ?= 1000 5000
# The numbers of Predictors that are measured, one run each.
BENCHPREDICTORS ?= 2000 10000
LINT := $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint

state := $${XDG_STATE_HOME:-$$HOME/.local/state}/modelplane
# Passed on to hack/up, for example UPFLAGS='--timeout 10m' or UPFLAGS=--no-gateway.
UPFLAGS ?=
# The local cluster as this checkout builds it, whatever KUBEBUILDER_ASSETS says.
local = $$(env -u KUBEBUILDER_ASSETS $(GO) run ./hack/assets)/modelplane-local

##@ Use

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: up
up: bin/up ## Start Kubernetes on this machine, with Modelplane installed (with KUBECONFIG: install it there)
	@bin/up $(UPFLAGS)

.PHONY: bin/up
bin/up:
	@echo "==> the installer (minutes the first time)"
	@$(GO) run ./hack/progress $(GO) build -v -o bin/up ./hack/up

.PHONY: down
down: ## End what `make up` started and remove its files
	@echo "==> ending the local cluster"
	@local="$(state)/bin/modelplane-local"; \
	if [ ! -d "$(state)" ]; then echo "  nothing runs"; exit; fi; \
	[ -x "$$local" ] || local="$(local)"; \
	"$$local" down

.PHONY: status
status: ## Show the processes of `make up`, the manager and its version
	@local="$(state)/bin/modelplane-local"; \
	[ -x "$$local" ] || { echo "nothing runs; make up starts it"; exit 1; }; \
	$(GO) build -o bin/up ./hack/up; \
	bin/up --local "$$local" --status

##@ Develop

.PHONY: build
build: ## Build bin/modelplane and bin/modelplane-pod
	@echo "==> building bin/modelplane and bin/modelplane-pod"
	@$(GO) build -o bin/ ./cmd/modelplane ./cmd/modelplane-pod

.PHONY: test
test: ## Run every test that needs no node, against a real API server
	@echo "==> programs for the tests"
	@assets=$$($(GO) run ./hack/assets); export KUBEBUILDER_ASSETS="$$assets"; \
	echo "    $$assets"; \
	echo "    kwok, which plays nodes (a minute the first time)"; \
	$(GO) tool -C bench/serving/kwok -n kwok >/dev/null; \
	echo "    an S3 server (three minutes the first time)"; \
	$(GO) tool -C internal/fetch/fetchtest/gateway/versitygw -n versitygw >/dev/null; \
	echo "    the known model registry (two minutes the first time)"; \
	$(GO) tool -C internal/testkit/upstream/modelregistry -n model-registry >/dev/null; \
	$(GO) run ./test/e2e/parts mlmd >/dev/null || [ -z "$${CI:-}" ]; \
	echo "==> go vet"; \
	$(GO) run ./hack/progress $(GO) vet -v ./...; \
	(cd local && $(GO) vet ./...); \
	echo "==> tests; those with the race detector, of the local control plane and of the ONNX server run beside, and speak after them"; \
	log=$$(mktemp); $(MAKE) --no-print-directory --keep-going --jobs 2 --output-sync=target test-beside TESTJOBS=$$(nproc) >"$$log" 2>&1 & beside=$$!; \
	packages=$$($(GO) list $(SLOW) ./... | awk '!seen[$$0]++'); \
	[ -z "$(RACE)" ] || packages=$$(grep -vxFf <($(GO) list $(RACY)) <<<"$$packages"); \
	failed=; $(GO) test $(TESTLINK) -p $(TESTJOBS) -timeout 20m $(TESTFLAGS) $$packages || failed=1; \
	wait "$$beside" || failed=1; \
	cat "$$log"; rm -f "$$log"; [ -z "$$failed" ]

# Each of these leaves a core idle when it runs alone.
.PHONY: test-beside
test-beside: $(if $(RACE),test-race) test-local test-onnx test-etcd

.PHONY: test-local
test-local: ## Run the tests of the local control plane
	@echo "==> tests of the local control plane"
	@cd local && $(GO) test $(TESTLINK) -p $(TESTJOBS) -timeout 20m $(TESTFLAGS) ./...

.PHONY: test-race
test-race: ## Run the tests of packages in which many things happen at once with the race detector (needs a C compiler)
	@echo "==> tests with the race detector (its builds take minutes the first time)"
	@export KUBEBUILDER_ASSETS="$$($(GO) run ./hack/assets)"; \
	CGO_ENABLED=1 $(GO) test -race $(TESTLINK) -p $(TESTJOBS) -timeout 20m $(TESTFLAGS) $(RACY)

.PHONY: test-onnx
test-onnx: ## Run the tests of the ONNX server, as far as there are a C compiler and ONNX Runtime
	@echo "==> tests of the ONNX server"
	@if ! command -v $${CC:-gcc} >/dev/null; then \
		echo "    skipped: there is no C compiler (Debian: gcc and libc6-dev)"; exit; fi; \
	cd runtimes/onnx; export CGO_ENABLED=1; \
	$(GO) run ./cmd/onnxfiles library || echo "    there is no ONNX Runtime; tests that need it are skipped"; \
	$(GO) vet ./...; \
	if [ -z "$(RACE)" ]; then $(GO) test $(TESTLINK) -p $(TESTJOBS) -timeout 20m $(TESTFLAGS) ./...; exit; fi; \
	echo "    with the race detector, but for those of memory, which it takes itself"; \
	$(GO) test -race $(TESTLINK) -p $(TESTJOBS) -timeout 20m -skip '^TestMemory' $(TESTFLAGS) ./...; \
	$(GO) test $(TESTLINK) -p $(TESTJOBS) -timeout 20m -run '^TestMemory' $(TESTFLAGS) ./internal/serve

.PHONY: test-etcd
test-etcd: ## Run the tests of the etcd that the chart runs
	@echo "==> tests of etcd's image"
	@cd runtimes/etcd && $(GO) vet ./... && $(GO) test $(TESTLINK) -p $(TESTJOBS) -timeout 20m $(TESTFLAGS) ./...

.PHONY: e2e-parts
e2e-parts: ## Fetch and build what the end-to-end tests use beside the product itself
	@echo "==> images for the tests"
	@mkdir -p dist/e2e; for package in test/e2e/echo examples/quickstart/transformer; do \
		name=modelplane-$$(basename $$package); \
		$(GO) run ./hack/image --by-content --package ./$$package --name $$name --out dist/e2e | tee dist/e2e/$$name.reference; \
	done
	@echo "==> the gateway of the local cluster (minutes the first time)"
	@$(GO) run ./hack/envoy binary
	@$(GO) build -C runtimes/gateway github.com/envoyproxy/gateway/cmd/envoy-gateway/root
	@echo "==> an S3 server for the tests (three minutes the first time)"
	@$(GO) tool -C internal/fetch/fetchtest/gateway/versitygw -n versitygw >/dev/null
	@echo "==> an MLflow server for the tests (three minutes the first time)"
	@$(GO) build -o dist/e2e/parts ./test/e2e/parts; reference=dist/e2e/modelplane-mlflow.reference; \
	if tree=$$(dist/e2e/parts tree); then \
		if ! [ "$$reference" -nt "$$tree" ]; then \
			$(GO) run ./hack/image --by-content --tree "$$tree" --name modelplane-mlflow --out dist/e2e >"$$reference.new"; \
			mv "$$reference.new" "$$reference"; \
		fi; cat "$$reference"; \
		dist/e2e/parts python >dist/e2e/mlflow-python; \
		echo "==> migrations of real databases"; \
		MODELPLANE_MLFLOW_PYTHON=$$(cat dist/e2e/mlflow-python) PYTHONDONTWRITEBYTECODE=1 $(GO) test $(TESTLINK) -run TestDatabase ./internal/mlflow/migrate; \
	elif [ $$? -eq 3 ] && [ -z "$${CI:-}" ]; then rm -f "$$reference"; echo "    it cannot be had; what needs it is skipped"; \
	else exit 1; fi
	@echo "==> the Python SDK for the tests (a minute the first time)"
	@python=dist/e2e/sdk-python; if dist/e2e/parts sdk >"$$python.new"; then mv "$$python.new" "$$python"; cat "$$python"; \
	elif [ $$? -eq 3 ] && [ -z "$${CI:-}" ]; then rm -f "$$python" "$$python.new"; echo "    it cannot be had; what needs it is skipped"; \
	else exit 1; fi
	@echo "==> the client of model registries and a PostgreSQL for the tests (a minute the first time)"
	@python=dist/e2e/registry-python reference=dist/e2e/modelplane-postgres.reference; \
	if dist/e2e/parts registry >"$$python.new" && tree=$$(dist/e2e/parts postgres); then mv "$$python.new" "$$python"; cat "$$python"; \
		if ! [ "$$reference" -nt "$$tree" ]; then \
			$(GO) run ./hack/image --by-content --tree "$$tree" --name modelplane-postgres --out dist/e2e >"$$reference.new"; \
			mv "$$reference.new" "$$reference"; \
		fi; cat "$$reference"; \
	elif [ $$? -eq 3 ] && [ -z "$${CI:-}" ]; then rm -f "$$python" "$$python.new"; echo "    they cannot be had; what needs them is skipped"; \
	else exit 1; fi

.PHONY: e2e
e2e: bin/up e2e-parts ## Bring everything up on this machine, use it, break it, take it down
	@echo "==> end-to-end tests"
	@local="$(local)"; MODELPLANE_LOCAL="$$local" MODELPLANE_UP="$(CURDIR)/bin/up" MODELPLANE_IMAGES=dist/e2e \
		$(GO) test -tags e2e -count 1 -v -parallel 8 -timeout 30m $(TESTFLAGS) ./test/e2e/...
	@echo "==> the cluster's addresses from another machine (nft is there now)"
	@cd local && $(GO) test $(TESTLINK) -count 1 -run TestNeighboursDoNotReachTheCluster ./internal/cluster

.PHONY: bench
bench: ## Run the benchmarks and check their figures against the expected ranges
	@echo "==> benchmarks"
	@assets=$$($(GO) run ./hack/assets); export KUBEBUILDER_ASSETS="$$assets"; \
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 60m $(TESTFLAGS) ./bench/...; \
	for n in $(BENCHSERVICES); do \
		echo "==> $$n services"; \
		$(GO) run ./bench/serving -n "$$n"; \
	done
	@echo "==> storage initializer"
	@$(GO) run ./bench/storage
	@echo "==> the graph router"
	@$(GO) run ./bench/router
	@echo "==> model registry"
	@$(GO) run ./bench/registry
	@$(GO) run ./bench/registry -upstream -n 5000 -out dist/bench/registry-upstream.json
	@echo "==> mesh of multi-model runtimes"
	@$(GO) run ./bench/modelmesh
	@for n in $(BENCHPREDICTORS); do echo "==> $$n Predictors"; $(GO) run ./bench/modelmesh -predictors "$$n" -out "dist/bench/predictors-$$n.json" || exit 1; done
	@echo "==> agent beside a model server"
	@$(GO) run ./bench/agent
	@echo "==> what stands between a client and a model"
	@$(GO) run ./bench/gateway
	@echo "==> ONNX server"
	@cd runtimes/onnx && CGO_ENABLED=1 $(GO) run ./bench

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME; an input that fails is kept below testdata/fuzz as a test
	@targets=$$(git grep -Ho '^func Fuzz[A-Za-z0-9_]*' -- '*_test.go' | sed 's|:func |:|' | sort \
		| while IFS=: read -r file target; do \
			[ -n "$(FUZZSINCE)" ] && git diff --quiet "$(FUZZSINCE)" HEAD -- "$$(dirname "$$file")" || echo "$$file:$$target"; done); \
	[ -n "$$targets" ] || { echo "==> nothing to fuzz"; exit; }; \
	echo "==> building the targets (a minute the first time)"; \
	rm -rf dist/fuzz; GO="$(GO)" hack/fuzz.sh build dist/fuzz $$(printf '%s\n' $$targets | xargs -n1 dirname | sort -u); \
	time="$(FUZZTIME)"; [ -z "$(FUZZBUDGET)" ] || { share=$$((2 * $(or $(FUZZBUDGET),0) / $$(printf '%s\n' $$targets | wc -l))); \
		[ "$$share" -ge "$${time%s}" ] || time="$$((share > 5 ? share : 5))s"; }; \
	printf '%s\n' $$targets | GO="$(GO)" xargs -P 2 -I{} hack/fuzz.sh run dist/fuzz {} "$$time"; \
	rm -rf dist/fuzz

.PHONY: lint
lint: ## Check style and the walls between rooms, in all modules
	@echo "==> lint (the linter is built first, about 2 minutes the first time)"
	@$(LINT) run ./...
	@# Not these four where Kubernetes itself is imported: with an empty cache they read all of its source, for minutes.
	@cd local && $(LINT) run --config ../.golangci.yml --disable bodyclose,nilerr,staticcheck,wastedassign ./...
	@# What cgo writes names the folder in which it ran. The setting keeps what is cached from one checkout out of another.
	@cd runtimes/onnx && CGO_ENABLED=1 CGO_CPPFLAGS=-I$(CURDIR) $(LINT) run --config ../../.golangci.yml ./...
	@cd runtimes/etcd && $(LINT) run --config ../../.golangci.yml ./...
	@# One file; a linter would have all of Envoy Gateway compiled first.
	@unformatted=$$(gofmt -l runtimes/gateway); [ -z "$$unformatted" ] || { echo "not formatted: $$unformatted" >&2; exit 1; }

.PHONY: fmt
fmt: ## Format the code
	@$(LINT) fmt ./...
	@cd local && $(LINT) fmt --config ../.golangci.yml ./...
	@cd runtimes/onnx && $(LINT) fmt --config ../../.golangci.yml ./...
	@cd runtimes/etcd && $(LINT) fmt --config ../../.golangci.yml ./...
	@cd runtimes/gateway && $(LINT) fmt --config ../../.golangci.yml ./...

.PHONY: generate
generate: ## Write everything that is generated: deep copies, wire forms, definitions, chart, kustomize bases, reference pages
	@echo "==> deep copies"
	@$(GO) tool controller-gen object paths=./api/...
	@$(GO) tool controller-gen object crd paths=./internal/engine/sample output:crd:dir=./internal/engine/sample
	@echo "==> wire forms"
	@$(GO) run ./hack/wiregen
	@echo "==> resource definitions"
	@$(GO) run ./hack/crdgen
	@echo "==> chart and kustomize bases"
	@$(GO) run ./hack/chartgen
	@echo "==> API reference"
	@$(GO) run ./hack/apidocs
	@echo "==> pages about commands and kinds"
	@$(GO) run ./hack/pages

.PHONY: verify
verify: ## Fail when something generated is out of date
	@echo "==> deep copies"
	@before=$$(cat $$(find api -name 'zz_generated.*.go' | sort) | sha256sum); \
	$(GO) tool controller-gen object paths=./api/...; \
	after=$$(cat $$(find api -name 'zz_generated.*.go' | sort) | sha256sum); \
	[ "$$before" = "$$after" ] || { echo "deep copies were out of date; commit what changed under api" >&2; exit 1; }
	@echo "==> wire forms"
	@$(GO) run ./hack/wiregen -check
	@echo "==> resource definitions"
	@$(GO) run ./hack/crdgen -check
	@echo "==> chart and kustomize bases"
	@$(GO) run ./hack/chartgen -check
	@echo "==> API reference"
	@$(GO) run ./hack/apidocs -check
	@echo "==> pages about commands and kinds"
	@$(GO) run ./hack/pages -check

.PHONY: image
image: ## Write the images as OCI archives under dist, without a container engine
	@echo "==> images"
	@$(GO) run ./hack/image
	@$(GO) run ./hack/image --package ./cmd/modelplane-pod
	@$(GO) run ./hack/image --module runtimes/etcd --package ./cmd/modelplane-etcd

.PHONY: gateway
gateway: ## Write the images of the local cluster's gateway as OCI archives under dist (minutes the first time)
	@echo "==> images of the gateway"
	@rm -rf dist/envoy; $(GO) run ./hack/envoy tree dist/envoy >/dev/null
	@$(GO) run ./hack/image --tree dist/envoy --name modelplane/envoy
	@$(GO) run ./hack/image --module runtimes/gateway --package ./cmd/envoy-gateway --name modelplane-gateway

.PHONY: onnx
onnx: ## Build the ONNX server and put the files of its image under dist/onnx
	@echo "==> files of the ONNX server"
	@rm -rf dist/onnx
	@cd runtimes/onnx && $(GO) run ./cmd/onnxfiles tree "$(CURDIR)/dist/onnx"

.PHONY: onnx-library
onnx-library: ## Fetch ONNX Runtime into the cache, once
	@cd runtimes/onnx && $(GO) run ./cmd/onnxfiles library

.PHONY: clean
clean: ## Remove what was built in this checkout
	@rm -rf bin dist
