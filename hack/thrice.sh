#!/usr/bin/env bash
# Runs a command that downloads something, up to three times.
set -uo pipefail
for pause in 5 20 0; do
	"$@" && exit 0
	code=$?
	[ "$pause" = 0 ] && exit "$code"
	echo "    once more in $pause s: $*" >&2
	sleep "$pause"
done
