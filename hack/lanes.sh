#!/usr/bin/env bash
# Prints the packages that are tested in a lane, with the race detector or without.
#
#   hack/lanes.sh together|alone plain|race
#
# Many packages are tested at once in the lane "together". Those that measure, or start several processes of their own, wait
# for the lane "alone", in which there is one at a time. From the environment: ALONE, RACY and SLOW are patterns of packages,
# RACE is empty (nobody gets the race detector), 1 (all of RACY) or a commit (those of RACY that have changed since then).
set -euo pipefail
lane=$1 mode=$2
go=${GO:-go}
# Also where one list is empty.
without() { grep -vxFf <(printf '%s\n' "$1") || true; }
within() { grep -xFf <(printf '%s\n' "$1") || true; }

alone=$($go list $ALONE)
racy=
case ${RACE:-} in
"") ;;
1) racy=$($go list $RACY) ;;
*)
	changed=$(git diff --name-only --relative "$RACE" HEAD -- '*.go' | xargs -r -n1 dirname | sort -u)
	racy=$($go list -f '{{.ImportPath}} {{.Dir}}' $RACY | while read -r package dir; do
		if grep -qxF "${dir#"$PWD/"}" <<<"$changed"; then echo "$package"; fi
	done)
	;;
esac
# Those that take longest begin first, so that none of them is waited for alone at the end.
packages=$($go list $SLOW ./... | awk '!seen[$0]++')
case $lane in
together) packages=$(without "$alone" <<<"$packages") ;;
alone) packages=$(within "$alone" <<<"$packages") ;;
*) echo "the lanes are together and alone" >&2 && exit 2 ;;
esac
case $mode in
plain) without "$racy" <<<"$packages" ;;
race) [ -z "$racy" ] || within "$racy" <<<"$packages" ;;
*) echo "tests run plain or with race" >&2 && exit 2 ;;
esac
