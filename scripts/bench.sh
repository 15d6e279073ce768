#!/usr/bin/env bash
# Figures of this machine: import times, then each part's own benchmark.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv/bin/python

echo "== import (best of 5, without the interpreter's own start)"
$python scripts/bench_import.py
for module in {policies,agent,broker,isolate,sandbox}/_bench.py; do
    [[ -f $module ]] || continue
    echo "== ${module%%/*}"
    $python -m "fumehood.${module%%/*}._bench"
done
