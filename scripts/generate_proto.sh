#!/usr/bin/env bash
# scripts/generate_proto.sh DIR: Python code and type stubs of proto/ into DIR/pdwire/v1.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "$1"
.venv/bin/python -m grpc_tools.protoc --proto_path=proto \
  --python_out="$1" --pyi_out="$1" --grpc_python_out="$1" proto/pdwire/v1/*.proto
