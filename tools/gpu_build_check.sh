#!/usr/bin/env bash
# tools/gpu_build_check.sh [VENV]     whether liblockstep_cuda.so is what a machine with GPUs needs, without a GPU:
#
#   1. it compiles with the headers of the GPU wheels alone, every toolkit of this machine hidden;
#   2. every symbol that it leaves open is found in those wheels when it is opened (RTLD_NOW);
#   3. the run-time compiler of those wheels compiles its kernels for every kind of GPU.
#
# VENV holds the GPU wheels (LOCKSTEP_GPU=1 tools/setup.sh makes such a .venv, 3 GB to fetch); default: .venv. Ends with 3
# where it does not hold them.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}
site=$(compgen -G "$venv/lib/python3*/site-packages" | head -1)
if [ ! -e "$site/nvidia/nccl/include/nccl.h" ] || [ ! -e "$site/nvidia/cu13/include/nv/target" ]; then
  echo "gpu_build_check: $venv holds no GPU wheels; \`LOCKSTEP_GPU=1 tools/setup.sh\` installs them" >&2
  exit 3
fi
folder=build/gpu_wheels
mkdir -p "$folder"
env -u CUDA_HOME -u CUDA_PATH -u CPATH LOCKSTEP_GPU=1 cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_SANITIZE= \
  -DLOCKSTEP_CUDA_TOOLKIT=OFF -DLOCKSTEP_TORCH="$(realpath "$site")/torch" >"$folder/configure.log" 2>&1 ||
  { cat "$folder/configure.log" >&2; exit 1; }
grep '^-- lockstep_cuda' "$folder/configure.log"
if grep '^-- lockstep_cuda' "$folder/configure.log" | grep -q /usr/; then
  echo "gpu_build_check: headers of an installed toolkit were found, which was to stay hidden" >&2
  exit 1
fi
env -u CUDA_HOME -u CUDA_PATH -u CPATH ninja -C "$folder" lockstep_cuda
python3 -B - "$folder/bin/liblockstep_cuda.so" <<'PYTHON'
import ctypes
import os
import sys

library = ctypes.CDLL(os.path.abspath(sys.argv[1]), mode=os.RTLD_NOW)  # every symbol, now
table = library.lockstep_cuda_api
table.restype = ctypes.POINTER(ctypes.c_int)
print(f"opened with all symbols bound; its table is version {table()[0]}")
compiled = library.lockstep_cuda_compile
compiled.restype = ctypes.c_size_t
for kind in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"):
    why = ctypes.create_string_buffer(4096)
    size = compiled(kind.encode(), why, ctypes.c_size_t(len(why)))
    if size == 0:
        sys.exit(f"gpu_build_check: {kind}: {why.value.decode()}")
    print(f"kernels for {kind}: {size} bytes")
PYTHON
