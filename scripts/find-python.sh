#!/usr/bin/env bash
# Print an interpreter of version 3.11 or newer that can make a venv. The system's own comes first: every user can reach it.
set -euo pipefail
usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
for candidate in ${PYTHON:-} /usr/bin/python3 python3 python3.{15,14,13,12,11}; do
    if found=$(command -v "$candidate") && usable "$found"; then
        echo "$found"
        exit 0
    fi
done
echo "No Python 3.11 or newer with the venv module was found." >&2
echo "On Debian 12: sudo apt-get install python3 python3-venv. Elsewhere name one: make test PYTHON=/path/to/python3" >&2
exit 1
