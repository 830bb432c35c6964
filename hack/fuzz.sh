#!/usr/bin/env bash
# Builds the fuzz targets of packages (fuzz.sh build INTO PACKAGE...), and runs one of them (fuzz.sh run FROM FILE:TARGET
# TIME). A run is quiet until its end, because several go side by side.
#
# Only the project's own packages, and the decoders that users' input meets first, are built with counters. `go test
# -fuzz` would compile everything below them once more, which takes longer than the fuzzing.
set -uo pipefail

does=$1 into=$PWD/$2 go=${GO:-go}
shift 2

# Rooms of one name are in several places, so a program is called by its whole path.
program() { echo "$into/${1//\//_}.test"; }

if [ "$does" = build ]; then
	mkdir -p "$into"
	for dir in "$@"; do
		module=$("$go" list -C "$dir" -m) counters=()
		for pattern in "$module/..." sigs.k8s.io/json/... sigs.k8s.io/yaml/... go.yaml.in/yaml/...; do
			counters+=("-gcflags=$pattern=-d=libfuzzer")
		done
		"$go" test -C "$dir" -c -vet=off -ldflags=-w "${counters[@]}" -o "$(program "$dir")" . || exit 1
	done
	exit
fi

dir=$(dirname "${1%%:*}") target=${1##*:} time=$2 said=$(mktemp)
binary=$(program "$dir")
trap 'rm -f "$said"' EXIT
cd "$dir" || exit 1
echo "==> $target in $dir for $time"
if "$binary" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" -test.fuzzminimizetime 2s -test.parallel 1 \
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
