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
TESTJOBS ?= 4
# Packages whose tests take longest. They begin first, the longest before all, so that none of them is waited for alone at the end.
SLOW := $(addprefix ./,test/packaging test/serving internal/maas internal/mlflow test/engine internal/serving bench/serving bench/modelmesh hack/image internal/maas/external internal/serving/graphs internal/serving/trainedmodels)
# Packages in which many things happen at once. With RACE=1 they are tested with the race detector instead of without.
RACY := $(addprefix ./internal/,engine/... testkit/... process/... manager/... certs/... admission/... fetch/... modelmesh/mesh/... modelmesh/puller modelmesh/rest openinference modelregistry/catalog/... modelregistry/server modelregistry/server/entity modelregistry/server/filter serving/agent/... serving/router serving/qpext maas/quota maas/enforce maas/metering)
# 1: they are. A commit: those of them that have changed since then. Empty: none is.
RACE ?=
# Packages that measure, or start several processes of their own: they are tested one at a time, when all others have ended.
ALONE := $(addprefix ./,cmd/modelplane-pod internal/modelmesh/mesh/... internal/serving/activator internal/maas/api internal/maas/quota internal/serving/agent/... bench/agent bench/gateway bench/maas bench/modelmesh)
export GO SLOW RACY ALONE RACE
# Whether `make test` vets.
VET ?= 1
# A folder: what tests say is written there, too, an event a line. And whether those that fail are run once more, alone, after
# all others: never after a data race, a panic or a time-out.
export TESTJSON ?=
export TESTAGAIN ?=
GOTESTSUM = $$($(GO) tool -modfile=$(CURDIR)/tools/gotestsum/go.mod -n gotestsum) --no-color --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary skipped,output \
	$(if $(TESTJSON),--jsonfile '$(TESTJSON)/$(1).json')
# $(call tests,NAME,PACKAGES,FLAGS): tests packages, none if there are none.
tests = packages="$(2)"; [ -z "$$packages" ] || $(GOTESTSUM) $(if $(TESTAGAIN),--rerun-fails=1 --rerun-fails-max-failures=10 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race) \
	--packages "$$packages" -- $(TESTLINK) -timeout 15m $(3) $(TESTFLAGS)
# For each fuzz target.
FUZZTIME ?= 30s
# A commit: fuzz only what has changed since then. Everything if empty.
FUZZSINCE ?=
# Seconds of fuzzing in all: each target gets its share, at most FUZZTIME and at least 5 s. No limit if empty.
FUZZBUDGET ?=
# One flag for the end-to-end tests, for example E2EFLAGS='-run=^TestMachine$$$$/^side_by_side$$$$/^traffic$$$$', and the time they have.
E2EFLAGS ?=
E2ETIMEOUT ?= 22m
# The numbers of InferenceServices that are measured, one run each.
BENCHSERVICES ?= 1000 5000
# The numbers of Predictors that are measured, one run each.
BENCHPREDICTORS ?= 2000 10000
LINT = $$($(GO) tool -modfile=$(CURDIR)/tools/go.mod -n golangci-lint)
# A commit: modules beside the main one are checked only where they have changed since then. Those that were found good are
# not checked again until they change.
LINTSINCE ?=

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
test: test-parts $(if $(VET),vet) ## Run every test that needs no node, against a real API server
	@failed=; $(MAKE) --no-print-directory test-together || failed=1; \
	$(MAKE) --no-print-directory test-alone || failed=1; \
	[ -z "$$failed" ]

.PHONY: vet
vet:
	@echo "==> go vet"
	@$(GO) run ./hack/progress $(GO) vet -v ./...
	@for module in local runtimes/etcd; do (cd $$module && $(GO) vet ./...); done
	@if command -v $${CC:-gcc} >/dev/null; then cd runtimes/onnx && CGO_ENABLED=1 $(GO) vet ./...; fi

.PHONY: test-parts
test-parts:
	@echo "==> programs for the tests"
	@echo "    $$($(GO) run ./hack/assets)"
	@echo "    kwok, which plays nodes (a minute the first time)"
	@$(GO) tool -C bench/serving/kwok -n kwok >/dev/null
	@echo "    an S3 server (three minutes the first time)"
	@$(GO) tool -C internal/fetch/fetchtest/gateway/versitygw -n versitygw >/dev/null
	@echo "    the known model registry (two minutes the first time)"
	@$(GO) tool -C internal/testkit/upstream/modelregistry -n model-registry >/dev/null
	@echo "    Authorino (two minutes the first time)"
	@$(GO) tool -C internal/maas/kuadrant/authorino -n github.com/kuadrant/authorino >/dev/null
	@echo "    the program that runs tests"
	@$(GO) tool -modfile=$(CURDIR)/tools/gotestsum/go.mod -n gotestsum >/dev/null
	@$(GO) run ./test/e2e/parts mlmd >/dev/null || [ -z "$${CI:-}" ]

# Together: at most TESTJOBS test binaries at once, and nothing beside them.
.PHONY: test-together
test-together: ## Run the tests that may run beside others
	@export KUBEBUILDER_ASSETS="$$($(GO) run ./hack/assets)" PYTHONDONTWRITEBYTECODE=1; failed=; \
	: "Migrations of real databases are tested where make parts has fetched MLflow."; \
	if [ -s dist/e2e/mlflow-python ]; then export MODELPLANE_MLFLOW_PYTHON="$$(cat dist/e2e/mlflow-python)"; fi; \
	echo "==> tests, $(TESTJOBS) packages at once"; \
	$(call tests,together,$$(hack/lanes.sh together plain),-p $(TESTJOBS)) || failed=1; \
	if [ -n "$(RACE)" ]; then \
		echo "==> tests with the race detector (needs a C compiler; its builds take minutes the first time)"; export CGO_ENABLED=1; \
		$(call tests,together-race,$$(hack/lanes.sh together race),-race -p $(TESTJOBS)) || failed=1; \
		export CGO_ENABLED=0; \
	fi; \
	echo "==> tests of the local control plane"; cd local; \
	$(call tests,local,./...,-p $(TESTJOBS)) || failed=1; \
	[ -z "$$failed" ]

# Alone: one test binary at a time.
.PHONY: test-alone
test-alone: ## Run the tests that measure, or start several processes of their own, one package at a time
	@export KUBEBUILDER_ASSETS="$$($(GO) run ./hack/assets)"; failed=; \
	echo "==> tests, one package at a time"; \
	$(call tests,alone,$$(hack/lanes.sh alone plain),-p 1) || failed=1; \
	if [ -n "$(RACE)" ]; then \
		echo "==> tests with the race detector, one package at a time"; export CGO_ENABLED=1; \
		$(call tests,alone-race,$$(hack/lanes.sh alone race),-race -p 1) || failed=1; \
		export CGO_ENABLED=0; \
	fi; \
	$(MAKE) --no-print-directory test-onnx || failed=1; \
	$(MAKE) --no-print-directory test-etcd || failed=1; \
	[ -z "$$failed" ]

.PHONY: test-onnx
test-onnx: ## Run the tests of the ONNX server, as far as there are a C compiler and ONNX Runtime
	@echo "==> tests of the ONNX server"
	@if ! command -v $${CC:-gcc} >/dev/null; then \
		echo "    there is no C compiler (Debian: gcc and libc6-dev)"; [ -z "$${CI:-}" ]; exit; fi; \
	cd runtimes/onnx; export CGO_ENABLED=1; \
	$(GO) run ./cmd/onnxfiles library || { echo "    there is no ONNX Runtime; tests that need it are skipped"; [ -z "$${CI:-}" ]; }; \
	if [ -z "$(RACE)" ]; then $(call tests,onnx,./...,-p 1); exit; fi; \
	failed=; echo "    with the race detector, but for those of memory, which it takes itself"; \
	$(call tests,onnx-race,./...,-race -p 1 -skip '^TestMemory') || failed=1; \
	$(call tests,onnx-memory,./internal/serve,-p 1 -run '^TestMemory') || failed=1; \
	[ -z "$$failed" ]

.PHONY: test-etcd
test-etcd: ## Run the tests of the etcd that the chart runs
	@echo "==> tests of etcd's image"
	@cd runtimes/etcd && $(call tests,etcd,./...,-p 1)

# Everything that is fetched or built for checks and tests, once, before anything is measured.
.PHONY: parts
parts: ## Fetch and build what all checks and tests use beside the product itself
	@echo "==> Debian's packages"
	@$(GO) run ./test/e2e/parts debian
	@echo "==> Go modules"
	@for module in $$(git ls-files 'go.mod' '*/go.mod' | xargs -n1 dirname); do \
		echo "    $$module"; hack/thrice.sh $(GO) list -C "$$module" -deps -test -tags e2e $$([ "$$module" = runtimes/gateway ] || echo ./...) tool >/dev/null; done
	@echo "==> Python's packages"
	@$(GO) run ./test/e2e/parts tree sdk mlmd registry models >/dev/null
	@echo "==> ONNX Runtime"
	@cd runtimes/onnx && "$(CURDIR)/hack/thrice.sh" $(GO) run ./cmd/onnxfiles library
	@$(MAKE) --no-print-directory test-parts
	@echo "==> the linter (minutes the first time)"
	@$(GO) tool -modfile=$(CURDIR)/tools/go.mod -n golangci-lint >/dev/null
	@$(MAKE) --no-print-directory bin/up build e2e-parts

.PHONY: preflight
preflight: ## Take away what ended runs of tests left on this machine, and say what is in the way
	@$(GO) build -o bin/preflight ./hack/preflight
	@[ -n "$${MODELPLANE_DIR:-}" ] || bin/preflight

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
	elif [ $$? -eq 3 ] && [ -z "$${CI:-}" ]; then rm -f "$$reference"; echo "    it cannot be had; what needs it is skipped"; \
	else exit 1; fi
	@echo "==> the Python SDK for the tests (a minute the first time)"
	@python=dist/e2e/sdk-python; if dist/e2e/parts sdk >"$$python.new"; then mv "$$python.new" "$$python"; cat "$$python"; \
	elif [ $$? -eq 3 ] && [ -z "$${CI:-}" ]; then rm -f "$$python" "$$python.new"; echo "    it cannot be had; what needs it is skipped"; \
	else exit 1; fi
	@echo "==> the clients of language models for the tests"
	@python=dist/e2e/models-python; if dist/e2e/parts models >"$$python.new"; then mv "$$python.new" "$$python"; cat "$$python"; \
	elif [ $$? -eq 3 ] && [ -z "$${CI:-}" ]; then rm -f "$$python" "$$python.new"; echo "    they cannot be had; what needs them is skipped"; \
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
e2e: preflight bin/up e2e-parts ## Bring everything up on this machine, use it, break it, take it down
	@echo "==> end-to-end tests"
	@local="$(local)"; failed=; export MODELPLANE_LOCAL="$$local" MODELPLANE_UP="$(CURDIR)/bin/up" MODELPLANE_IMAGES=dist/e2e; \
	$(call GOTESTSUM,e2e) --packages ./test/e2e/... -- -tags e2e -count 1 -parallel 8 -timeout $(E2ETIMEOUT) $(if $(E2EFLAGS),'$(E2EFLAGS)') $(TESTFLAGS) || failed=1; \
	echo "==> the cluster's addresses from another machine (nft is there now)"; cd local; \
	$(call tests,neighbours,./internal/cluster,-count 1 -run TestNeighboursDoNotReachTheCluster) || failed=1; \
	[ -z "$$failed" ]

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
	@echo "==> lint (the linter is built first, minutes the first time)"
	@linter="$(LINT)"; "$$linter" run ./...; export linter LINTSINCE="$(LINTSINCE)"; \
	: "Not these four where Kubernetes itself is imported: with an empty cache they read all of its source, for minutes."; \
	hack/lint-module.sh local --disable bodyclose,nilerr,staticcheck,wastedassign; \
	: "What cgo writes names the folder in which it ran. The setting keeps what is cached from one checkout out of another."; \
	CGO_ENABLED=1 CGO_CPPFLAGS=-I$(CURDIR) hack/lint-module.sh runtimes/onnx; \
	hack/lint-module.sh runtimes/etcd
	@# One file; a linter would have all of Envoy Gateway compiled first.
	@unformatted=$$(gofmt -l runtimes/gateway); [ -z "$$unformatted" ] || { echo "not formatted: $$unformatted" >&2; exit 1; }

.PHONY: fmt
fmt: ## Format the code
	@linter="$(LINT)"; "$$linter" fmt ./...
	@linter="$(LINT)"; for module in local runtimes/onnx runtimes/etcd runtimes/gateway; do \
		(cd $$module && "$$linter" fmt --config "$(CURDIR)/.golangci.yml" ./...); done

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
