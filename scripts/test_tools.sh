#!/usr/bin/env bash
# The programs beside Python that tests call. Missing ones are installed where that can be done
# without asking (as root, with apt); elsewhere it says what to install.
set -euo pipefail

missing=()
for pair in cc:gcc ip:iproute2 openssl:openssl curl:curl git:git; do
  command -v "${pair%%:*}" >/dev/null || [ -x "/usr/sbin/${pair%%:*}" ] || missing+=("${pair##*:}")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq && apt-get install -y -qq "${missing[@]}"
else
  echo "Some tests need more programs: sudo apt install ${missing[*]}" >&2
fi
