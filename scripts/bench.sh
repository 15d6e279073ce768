#!/usr/bin/env bash
# Figures of this machine: import times, then `fumehood bench` with the words given.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv/bin/python

echo "== import (best of 5, without the interpreter's own start)"
$python scripts/bench_import.py
echo
exec .venv/bin/fumehood bench "$@"
