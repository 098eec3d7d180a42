#!/usr/bin/env bash
# tools/fuzz.sh SEED     the random tests of the release build, longer than usual and from another seed
set -euo pipefail
cd "$(dirname "$0")/.."
export LOCKSTEP_FUZZ_SEED=$1 LOCKSTEP_FUZZ_STEPS=${LOCKSTEP_FUZZ_STEPS:-600} OMP_NUM_THREADS=1
build/release/bin/exec_test --gtest_filter='Fuzz.*' --gtest_brief=1
build/release/bin/comm_test --gtest_filter='GatherNestedFuzz.*' --gtest_brief=1
build/release/bin/guard_test --gtest_filter='JudgeProperty.*' --gtest_brief=1
