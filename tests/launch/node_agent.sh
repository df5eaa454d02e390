#!/usr/bin/env bash
# node_agent.sh HOST COMMAND...: what ssh is to real machines, for the nodes of two_nodes.sh: a shell on HOST reads COMMAND,
# with none of the caller's environment. When the node is killed it ends with 255; if NODE_SILENT is set, it hangs, as
# ssh does when a machine loses its power.
set -euo pipefail
[ "$1" = b ] || { echo "node_agent.sh: no node $1" >&2; exit 255; }
shift
environment=(PATH="$PATH" HOME="$HOME" TMPDIR="$TMPDIR")
for name in ASAN_OPTIONS LSAN_OPTIONS UBSAN_OPTIONS; do # of a sanitized build
  if [ -n "${!name-}" ]; then environment+=("$name=${!name}"); fi
done
cd /
code=0
nsenter -t "$NODE_B" -m -u -n -p env -i "${environment[@]}" bash -c "$*" || code=$?
[ "$code" -ge 128 ] || exit "$code"
if [ -n "${NODE_SILENT-}" ]; then exec sleep infinity; fi
exit 255
