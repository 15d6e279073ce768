#!/usr/bin/env bash
# Make sure of the programs in debian-packages.txt: silent when all are there, apt only as root, else a line to copy.
# $1: "run" for what the product needs, "test" for everything.
set -euo pipefail
level=${1:?run or test}
list=$(dirname "${BASH_SOURCE[0]}")/debian-packages.txt

installed=" $(dpkg-query -W -f='${db:Status-Abbrev}${Package} ' 2>/dev/null | grep -oP 'ii \K\S+' | tr '\n' ' ' || true)"
missing=()
while read -r package command needed _; do
    case $package in '' | '#'*) continue ;; esac
    [[ $needed == test && $level == run ]] && continue
    [[ $command != - ]] && command -v "$command" >/dev/null && continue
    [[ $installed == *" $package "* ]] && continue
    [[ $command == - ]] && ! command -v dpkg-query >/dev/null && continue # not Debian: nothing here can tell
    missing+=("$package")
done <"$list"
[[ ${#missing[@]} -eq 0 ]] && exit 0

if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
    echo "These programs are missing: ${missing[*]}" >&2
    echo "Install them first:  sudo apt-get update && sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
echo "installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -q -o DPkg::Lock::Timeout=120)
"${apt[@]}" update >/dev/null
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
