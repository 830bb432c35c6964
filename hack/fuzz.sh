#!/usr/bin/env bash
# Runs one fuzz target: fuzz.sh FILE:TARGET TIME. It is quiet until the end, because several run side by side.
set -uo pipefail

dir=$(dirname "${1%%:*}") target=${1##*:} time=$2
echo "==> $target in $dir for $time"
said=$(mktemp)
trap 'rm -f "$said"' EXIT
if (cd "$dir" && "${GO:-go}" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -parallel 1 .) >"$said" 2>&1; then
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
