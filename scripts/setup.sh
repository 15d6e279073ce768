#!/usr/bin/env bash
# Everything a checkout needs before its first command: Debian packages, .venv, the project in it.
# $1: "run" for the product and its demo, "test" (the default) for the extras and the tools of the tests too.
# A stamp per level holds what was installed, so a checkout that is current goes straight on and no pip is run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022 # the tests' ordinary user reads these files
level=${1:-test}
scripts/debian.sh "$level"

wanted="$PWD $(cat pyproject.toml scripts/setup.sh | sha256sum)"
current() { [[ $(cat ".venv/installed-$1" 2>/dev/null) == "$wanted" ]]; }
works() { [[ -x .venv/bin/python ]] && .venv/bin/python -I -S -c '' 2>/dev/null; }
if works && { current test || current "$level"; }; then
    exit 0
fi

if ! works; then
    python=$(scripts/find-python.sh)
    echo "making .venv with $python"
    rm -rf .venv
    "$python" -m venv .venv
fi
echo "installing the project into .venv"
# Twice quiet: errors only. What pip warns of is about its own settings on this machine.
pip=(.venv/bin/python -m pip --quiet --quiet --disable-pip-version-check --no-input)
if [[ $level == run ]]; then
    "${pip[@]}" install --editable '.[sandbox]'
else
    "${pip[@]}" install --upgrade 'pip>=25.1' # for --group; a Debian venv starts with an older one
    "${pip[@]}" install --editable '.[all]' --group dev
fi
printf '%s' "$wanted" >".venv/installed-$level"
