#!/usr/bin/env bash
# scripts/install.sh EXTRAS: make .venv if it is missing, install pdspan[EXTRAS] into it, pinned.
# Safe to interrupt and to repeat. The Makefile calls it; $PYTHON chooses another interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1

fail() {
  echo "pdspan: error: $1" >&2
  exit 1
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  fail "Python 3.11 or newer is needed (looked for: ${PYTHON:-python3, python3.11 to 3.14});\
 on Debian and Ubuntu: sudo apt install python3 python3-venv"
}

make_venv() {
  local python
  python=$(find_python)
  if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    fail "Python's venv module is missing: sudo apt install\
 python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
  fi
  echo "Creating .venv with $("$python" --version)"
  "$python" -m venv .venv
  .venv/bin/python -m pip install --quiet --upgrade --constraint constraints.txt pip
}

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  make_venv
fi
echo "Installing pdspan[$1] into .venv"
.venv/bin/python -m pip install --constraint constraints.txt --editable ".[$1]"
