#!/usr/bin/env bash
# tools/fuzz.sh SEED               the random tests of the release build, longer than usual and from another seed
# tools/fuzz.sh TARGET [SECONDS]   libFuzzer and the address sanitizer over a reader of files (tests/fuzz): needs clang
#                                  and build/release; cases are kept in build/fuzz/TARGET, crashes in build/fuzz/found
# tools/fuzz.sh targets            the names
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $1 =~ ^[0-9]+$ ]]; then
  export LOCKSTEP_FUZZ_SEED=$1 LOCKSTEP_FUZZ_STEPS=${LOCKSTEP_FUZZ_STEPS:-600} OMP_NUM_THREADS=1
  build/release/bin/exec_test --gtest_filter='Fuzz.*' --gtest_brief=1
  LOCKSTEP_FUZZ_RUNS=${LOCKSTEP_FUZZ_RUNS:-300} build/release/bin/train_test --gtest_filter='StepContractFuzz.*' --gtest_brief=1
  build/release/bin/comm_test --gtest_filter='GatherNestedFuzz.*' --gtest_brief=1
  build/release/bin/guard_test --gtest_filter='JudgeProperty.*' --gtest_brief=1
  build/release/bin/fuzz_replay tests/fuzz/seeds "${LOCKSTEP_FUZZ_ROUNDS:-2000}"
  exit
fi
if [ "$1" = targets ]; then
  ls tests/fuzz/seeds
  exit
fi

clang=$(tools/llvm_tool.sh clang++)
out=build/fuzz
mkdir -p "$out/objects" "$out/found" "$out/$1"
# What the targets read with, and nothing that needs LibTorch: instrumented, so that new paths are seen as such.
mapfile -t sources < <(
  ls src/lockstep/base/*.cpp src/lockstep/text/*.cpp src/lockstep/text/{jinja,sentencepiece}/*.cpp src/lockstep/data/*.cpp src/lockstep/guard/{frames,tree_key}.cpp \
    src/lockstep/model/{hf_config,safetensors_header,stored_tensor,zip_members,pickle,pickle_reader,torch_tensor,torch_file}.cpp src/lockstep/tensor/spec.cpp src/lockstep/state/{trainer_state,checkpoint_manifest}.cpp \
    src/lockstep/zoo/{config_keys,read_text_config,read_rope_config,read_windows}.cpp src/lockstep/dialect/*.cpp src/lockstep/plan/{zero,deepspeed_file,flag_json}.cpp \
    build/release/src/lockstep/flag_table_text.cpp tests/fuzz/{reading_targets,command_targets,libfuzzer}.cpp | grep -vE "_test.cpp|data/(dataset|loader|log_mel|shapes|processor|unbuilt_media|epoch_order|row_groups|random|sample_view|encode_image).cpp")
make_object() {
  local object=build/fuzz/objects/${1//\//_}.o
  [ "$object" -nt "$1" ] && [ -z "$(find src tests/fuzz -name '*.h' -newer "$object" -print -quit)" ] && return
  "$CLANG" -std=c++20 -include tools/tidy_shim.h -O1 -g -Isrc -Itests/fuzz -idirafter "$TORCH" -DFMT_SHARED -DUTF8PROC_EXPORTS '-DLOCKSTEP_VERSION="fuzz"' \
    -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -c "$1" -o "$object"
}
export -f make_object
TORCH=$(echo .venv/lib/python3*/site-packages/torch/include)
export CLANG=$clang TORCH
printf '%s\0' "${sources[@]}" | xargs -0 -n1 -P "${JOBS:-1}" bash -ec 'make_object "$0"'
objects=()
for source in "${sources[@]}"; do objects+=("$out/objects/${source//\//_}.o"); done
"$clang" -fsanitize=fuzzer,address,undefined -o "$out/fuzz" "${objects[@]}" \
  -lfmt -lpcre2-8 -lutf8proc -ljpeg -lpng -lwebp -lsndfile -lsoxr -lxxhash -lyaml-cpp
export LOCKSTEP_FUZZ_TARGET=$1
# A seed past a budget of steps takes some seconds under the sanitizer; what takes longer is a finding.
"$out/fuzz" -max_total_time="${2:-300}" -rss_limit_mb=3000 -timeout=25 -max_len=65536 -artifact_prefix="$out/found/$1-" \
  -print_final_stats=1 "$out/$1" "tests/fuzz/seeds/$1"
