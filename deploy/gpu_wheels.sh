#!/usr/bin/env bash
# Downloads the packages that a machine with a GPU may lack, for deploy/gpu_check.sh. See usage below.
# torch, Triton, numpy and the CUDA libraries are not among them: that machine has its own.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

MAX_MIB=56

usage() {
  cat <<'USAGE'
usage: gpu_wheels.sh [--python VERSION] [--wheels DIR]

Run it where a package index can be reached; then take the repository, with its wheels, to the machine
with the GPU, and run deploy/gpu_check.sh there.

  --python VERSION  the Python of that machine (default: 3.12)
  --wheels DIR      where to (default: deploy/wheels, which git ignores)
USAGE
}

fail_usage() {
  echo "gpu_wheels.sh: $1; see --help" >&2
  exit 2
}

version=3.12 wheels=$root/deploy/wheels
while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --python) version=${2-}; shift 2 || fail_usage "--python needs a version" ;;
    --wheels) wheels=${2-}; shift 2 || fail_usage "--wheels needs a directory" ;;
    *) fail_usage "unknown argument '$1'" ;;
  esac
done
[[ $version =~ ^3\.[0-9]+$ ]] || fail_usage "--python is '$version'; for example 3.12"

packages=(
  # FlashInfer and what importing it needs. Of its other dependencies (CUTLASS DSL, cuDNN's front end)
  # it makes no use for paged attention.
  flashinfer-python apache-tvm-ffi einops ninja nvidia-ml-py tabulate tqdm requests urllib3
  charset-normalizer certifi idna packaging
  # The serving processes.
  fastapi starlette opentelemetry-api pydantic pydantic-core annotated-types annotated-doc
  typing-inspection typing-extensions uvicorn h11 click httpx httpcore anyio sniffio jinja2
  markupsafe rich markdown-it-py mdurl pygments grpcio grpcio-health-checking protobuf uvloop
  xxhash prometheus-client tokenizers safetensors
  # The tests.
  pytest pytest-asyncio pytest-timeout pluggy iniconfig
)

platforms=()
for glibc in 17 24 26 27 28 31 34; do
  platforms+=(--platform "manylinux_2_${glibc}_x86_64")
done

mkdir -p "$wheels"
rm -f "$wheels"/*.whl
cd "$root"
python=${PYTHON:-}
if [[ -z $python ]]; then
  python=python3
  [[ ! -x .venv/bin/python ]] || python=.venv/bin/python
fi
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  --python-version "$version" --implementation cp "${platforms[@]}" --platform manylinux2014_x86_64 \
  --constraint constraints.txt --dest "$wheels" "${packages[@]}"

size_mib=$(du --apparent-size --block-size=1M --summarize "$wheels" | cut -f 1)
echo "$wheels: $(find "$wheels" -name '*.whl' | wc -l) wheels for Python $version, $size_mib MiB"
((size_mib <= MAX_MIB)) || {
  echo "gpu_wheels.sh: more than $MAX_MIB MiB: too much to take along with the code" >&2
  exit 1
}
