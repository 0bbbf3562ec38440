#!/usr/bin/env bash
# Runs the bundle's tests on this machine, including those that need a GPU if there is one.
#
#   ./check.sh [--all] [lit arguments]
#
# Without --all, runs only test/Integration (numerical results) and the tests of the C API. The last
# line is "N passed, N failed, N skipped"; the exit status is 0 only if a test ran and none failed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v python3 >/dev/null || { echo "check.sh: error: expected python3 but found none" >&2; exit 1; }
filter=(--filter '^(.* :: )?(Integration|CAPI)/')
if [[ ${1:-} == --all ]]; then
  filter=()
  shift
fi

FLASHATTN_CHECK_DIR=$(mktemp -d)
export FLASHATTN_CHECK_DIR
trap 'rm -rf "$FLASHATTN_CHECK_DIR"' EXIT
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || true
else
  echo "no NVIDIA driver found: only the tests of the CPU run"
fi
status=0
PYTHONPATH="$root/lit" PYTHONDONTWRITEBYTECODE=1 python3 -c 'from lit.main import main; main()' -sv \
  --output "$FLASHATTN_CHECK_DIR/results.json" "${filter[@]}" "$@" "$root" || status=$?
python3 "$root/test/summary.py" "$FLASHATTN_CHECK_DIR/results.json" || status=1
exit "$status"
