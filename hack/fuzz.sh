#!/usr/bin/env bash
# Runs one fuzz target: fuzz.sh FILE:TARGET TIME. It is quiet until the end, because several run side by side.
#
# Only the project's own packages, and the decoders that users' input meets first, are built with counters. `go test
# -fuzz` would compile everything below them once more, which takes longer than the fuzzing.
set -uo pipefail

dir=$(dirname "${1%%:*}") target=${1##*:} time=$2 go=${GO:-go}
cd "$dir" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
package=$("$go" list .) module=$("$go" list -m)
counters=()
for pattern in "$module/..." sigs.k8s.io/json/... sigs.k8s.io/yaml/... go.yaml.in/yaml/...; do
	counters+=("-gcflags=$pattern=-d=libfuzzer")
done
if ! "$go" test -c "${counters[@]}" -o "$work/test" . || [ "$time" = build ]; then
	exit $?
fi
echo "==> $target in $dir for $time"
if "$work/test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" -test.parallel 1 \
	-test.fuzzcachedir "$("$go" env GOCACHE)/fuzz/$package" >"$work/said" 2>&1; then
	grep -q 'without coverage guidance' "$work/said" && { echo "    $target has no counters"; exit 1; }
	echo "    $target: clean, $(grep -o 'execs: [0-9]*' "$work/said" | tail -1)"
	exit
fi
# Go sometimes ends a run in the middle of an input, which is no finding.
if grep -q 'context deadline exceeded' "$work/said" && ! grep -q 'Failing input written' "$work/said"; then
	echo "    $target: no input failed, the time was up in the middle of one"
	exit
fi
echo "    $target failed:"
cat "$work/said"
exit 1
