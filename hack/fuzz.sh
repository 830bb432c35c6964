#!/usr/bin/env bash
# Builds the fuzz targets of packages (fuzz.sh build INTO PACKAGE...), and runs one of them (fuzz.sh run FROM FILE:TARGET
# TIME). A run is quiet until its end, because several go side by side.
#
# Only the project's own packages, and the decoders that users' input meets first, are built with counters. `go test
# -fuzz` would compile everything below them once more, which takes longer than the fuzzing.
set -uo pipefail

does=$1 into=$PWD/$2 go=${GO:-go}
shift 2

if [ "$does" = build ]; then
	# All packages of a module at once: what they have in common is compiled once.
	for module in . runtimes/onnx; do
		packages=() counters=()
		for dir in "$@"; do
			[ "$("$go" list -C "$dir" -m -f '{{.Dir}}')" != "$(cd "$module" && pwd)" ] || packages+=("$PWD/$dir")
		done
		[ ${#packages[@]} -gt 0 ] || continue
		for pattern in "$("$go" list -C "$module" -m)/..." sigs.k8s.io/json/... sigs.k8s.io/yaml/... go.yaml.in/yaml/...; do
			counters+=("-gcflags=$pattern=-d=libfuzzer")
		done
		mkdir -p "$into"
		"$go" test -C "$module" -c -vet=off -ldflags=-w "${counters[@]}" -o "$into/" "${packages[@]}" || exit 1
	done
	exit
fi

dir=$(dirname "${1%%:*}") target=${1##*:} time=$2 said=$(mktemp)
binary=$into/$(basename "$dir").test
trap 'rm -f "$said"' EXIT
cd "$dir" || exit 1
echo "==> $target in $dir for $time"
if "$binary" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" -test.parallel 1 \
	-test.fuzzcachedir "$("$go" env GOCACHE)/fuzz/$("$go" list .)" >"$said" 2>&1; then
	grep -q 'without coverage guidance' "$said" && { echo "    $target has no counters"; exit 1; }
	echo "    $target: clean, $(grep -o 'execs: [0-9]*' "$said" | tail -1)"
	exit
fi
# Go sometimes ends a run in the middle of an input, which is no finding.
if grep -q 'context deadline exceeded' "$said" && ! grep -q 'Failing input written' "$said"; then
	echo "    $target: no input failed, the time was up in the middle of one"
	exit
fi
echo "    $target failed:"
cat "$said"
exit 1
