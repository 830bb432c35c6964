#!/usr/bin/env bash
# Checks a module beside the main one, unless what it consists of was found good before, or has not changed since LINTSINCE.
#
#   linter=PROGRAM hack/lint-module.sh MODULE [FLAGS of the linter]
set -euo pipefail
module=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
if [ -n "${LINTSINCE:-}" ] && git -C "$here" diff --quiet "$LINTSINCE" HEAD -- "$module" .golangci.yml; then
	echo "    $module is not checked: it has not changed since $LINTSINCE, and nothing is cached here"
	exit
fi
marks=${XDG_CACHE_HOME:-$HOME/.cache}/modelplane/lint
# Its files as they are, the settings, the flags and the linter.
key=$({
	echo "$module $*"
	cd "$here" && cat .golangci.yml tools/go.sum
	git ls-files -z -co --exclude-standard -- "$module" | xargs -0 -r sha256sum
} | sha256sum | cut -c1-24)
if [ -e "$marks/$key" ]; then
	echo "    $module was found good before"
	exit
fi
(cd "$here/$module" && "$linter" run --config "$here/.golangci.yml" "$@" ./...)
mkdir -p "$marks"
touch "$marks/$key"
