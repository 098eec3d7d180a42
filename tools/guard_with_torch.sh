#!/bin/bash
# The guard with another torch: installs that torch from PyPI with all it asks for (3 to 5 GB), builds the package against it, and
# runs the jobs of tests/guard that need nothing else, first those with nothing wrong.
#
#   tools/guard_with_torch.sh 2.6.0 [words of tests/guard/fault_suite.py, such as --ranks 2 3 or --only '^ddp']
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2; }
torch=$1
shift
place=$PWD/build/guard_torch/$torch
[ -x "$place/venv/bin/python" ] || python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check "torch==$torch" numpy nanobind scikit-build-core cmake ninja
CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) "$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation \
  --no-deps --upgrade --target "$place/package" --config-settings=build-dir="$place/objects" ./python
OMP_NUM_THREADS=1 exec "$place/venv/bin/python" tests/guard/fault_suite.py --package "$place/package" \
  --only '^(plain|ends|meeting|ddp|fsdp2)' "$@"
