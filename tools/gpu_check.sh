#!/usr/bin/env bash
# tools/gpu_check.sh [--quick] [--only NAME,…]   everything that needs a GPU, in order of risk, within ten minutes; needs a
#                                                build (LOCKSTEP_GPU=1 make build). Writes bench/results/gpu.json.
# LOCKSTEP_BIN=build/release/bin/lockstep_on_fake_gpus LOCKSTEP_FAKE_GPUS=2 tries the script itself on GPUs that are none.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 -B tests/gpu_check.py "$@"
