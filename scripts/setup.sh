#!/usr/bin/env bash
# Everything a checkout needs before its first command: Debian packages, .venv, the project and its tools in it.
# A stamp holds what was installed, so a checkout that is current goes straight on and no pip is run.
# $1: "run" for the product and its demo, "test" (the default) for the tests too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022 # the tests' ordinary user reads these files
scripts/debian.sh "${1:-test}"

stamp=.venv/installed
wanted="$PWD $(cat pyproject.toml scripts/setup.sh | sha256sum)"
works() { [[ -x .venv/bin/python ]] && .venv/bin/python -I -S -c '' 2>/dev/null; }
if works && [[ $(cat $stamp 2>/dev/null) == "$wanted" ]]; then
    exit 0
fi

if ! works; then
    python=$(scripts/find-python.sh)
    echo "making .venv with $python"
    rm -rf .venv
    "$python" -m venv .venv
fi
echo "installing the project and its tools into .venv"
pip=(.venv/bin/python -m pip --quiet --disable-pip-version-check --no-input)
# --group came with pip 25.1; a Debian venv starts with an older one.
.venv/bin/python -c 'import pip, sys; sys.exit([int(n) for n in pip.__version__.split(".")[:2]] < [25, 1])' ||
    "${pip[@]}" install --upgrade 'pip>=25.1'
"${pip[@]}" install --editable '.[all]' --group dev
printf '%s' "$wanted" >$stamp
