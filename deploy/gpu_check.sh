#!/usr/bin/env bash
# The check of everything that needs a GPU, in one script of less than 6 minutes. See usage below.
# Needs no network: what is missing is installed from wheels beside this file (deploy/gpu_wheels.sh).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")

usage() {
  cat <<'USAGE'
usage: gpu_check.sh [--cpu] [--model DIR] [--out DIR] [--wheels DIR]

Compares FlashInfer with the torch reference (tests/gpu), then serves with one prefill and one decode
process on the GPU and compares their tokens with colocated ones.

  --cpu         the same steps on the CPU, with torch's attention: a check of this script
  --model DIR   the model to serve (default: a small random one, made on the spot)
  --out DIR     where result.json and the steps' logs go (default: build/gpu-check)
  --wheels DIR  packages to install if they are missing (default: deploy/wheels)

$PYTHON chooses the interpreter: else .venv/bin/python, else python3.
Exit status: 0 all steps passed, 1 a step failed, 2 wrong usage.
USAGE
}

fail_usage() {
  echo "gpu_check.sh: $1; see --help" >&2
  exit 2
}

device=cuda attention=flashinfer model= out=$root/build/gpu-check wheels=$here/wheels
while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --cpu) device=cpu attention=torch; shift ;;
    --model | --out | --wheels)
      (($# > 1)) || fail_usage "$1 needs a directory"
      case $1 in
        --model) model=$2 ;;
        --out) out=$2 ;;
        --wheels) wheels=$2 ;;
      esac
      shift 2
      ;;
    *) fail_usage "unknown argument '$1'" ;;
  esac
done
[[ -z $model || -f $model/config.json ]] || fail_usage "--model $model has no config.json"

python=${PYTHON:-}
if [[ -z $python ]]; then
  python=python3
  [[ ! -x $root/.venv/bin/python ]] || python=$root/.venv/bin/python
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/*.log "$out"/*.json
site=$out/site  # installed beside the results, so that the machine stays as it is
export PYTHONPATH=$site:$root/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
# For FlashInfer's compiler: ninja may be a wheel, nvcc is often off the PATH, and the driver's library
# may lack the name that the linker looks for.
export PATH=$site/bin:$PATH:/usr/local/cuda/bin CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}
driver=$(ldconfig -p 2>/dev/null | awk '/libcuda\.so/ { print $NF; exit }')
if [[ -n $driver ]]; then
  mkdir -p "$out/lib"
  ln -sf "$driver" "$out/lib/libcuda.so"
  export LIBRARY_PATH=$out/lib${LIBRARY_PATH:+:$LIBRARY_PATH}
fi
cd "$root"

install_wheels() {
  rm -rf "$site"
  "$python" "$here/gpu/missing_wheels.py" "$wheels" >"$out/wheels.txt"
  cat "$out/wheels.txt"
  if [[ -s $out/wheels.txt ]]; then
    xargs -d '\n' "$python" -m pip install --quiet --no-deps --no-index --no-compile \
      --disable-pip-version-check --find-links "$wheels" --target "$site" <"$out/wheels.txt"
  fi
}

environment() {
  "$python" "$here/gpu/environment.py" "$device" >"$out/environment.json"
}

compile_kernels() {
  "$python" "$here/gpu/compile_kernels.py"
}

run_tests() {
  "$python" -m pytest -p no:cacheprovider tests/gpu
}

serve() {
  if [[ -z $model ]]; then
    model=$out/tiny-model
    "$python" "$here/gpu/tiny_model.py" "$model"
  fi
  "$python" "$here/gpu/serve.py" --model "$model" --device "$device" --attention "$attention" \
    >"$out/serve.json"
}

steps=() num_failed=0
# step NAME LIMIT_S FUNCTION: run it in a process of its own, bounded, its output in NAME.log.
step() {
  local name=$1 limit_s=$2 status=0 outcome=passed started=$EPOCHREALTIME seconds
  timeout --kill-after=5 "$limit_s" bash -c "set -euo pipefail; $3" >"$out/$name.log" 2>&1 || status=$?
  seconds=$(awk -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
  case $status in
    0) ;;
    124 | 137) outcome="timed out" ;;
    *) outcome=failed ;;
  esac
  if [[ $outcome != passed ]]; then
    num_failed=$((num_failed + 1))
    tail -n 15 "$out/$name.log" >&2
  fi
  printf '%-12s %-10s %6s s of %s\n' "$name" "$outcome" "$seconds" "$limit_s"
  steps+=("$(printf '{"name": "%s", "outcome": "%s", "status": %d, "seconds": %s, "limit_s": %d}' \
    "$name" "$outcome" "$status" "$seconds" "$limit_s")")
}

# What a step wrote as JSON, or null.
json_of() {
  if [[ -s $out/$1.json ]]; then cat "$out/$1.json"; else echo null; fi
}

export here root python device attention model out wheels site
export -f install_wheels environment compile_kernels run_tests serve
step install 30 install_wheels
step environment 20 environment
# Without its packages nothing else can pass, nor say anything new.
if ((num_failed == 0)); then
  [[ $device == cpu ]] || step compile 150 compile_kernels
  step tests 80 run_tests
  step serve 70 serve
fi
passed=$( ((num_failed == 0)) && echo true || echo false)
printf '{"device": "%s", "passed": %s, "steps": [%s], "environment": %s, "serve": %s}\n' "$device" \
  "$passed" "$(IFS=,; echo "${steps[*]}")" "$(json_of environment)" "$(json_of serve)" >"$out/result.json"
echo "$out/result.json"
[[ $passed == true ]]
