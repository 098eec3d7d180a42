#include "lockstep/doctor/versions.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

GpuFacts working() {
  return {.there = 2,
          .visible = 2,
          .library_found = true,
          .library_runs = true,
          .versions = "CUDA 13.0, driver 13.0, NCCL 2.28.9",
          .kernel_driver = "580.65.06"};
}

TEST(Torch, TheLoadedReleaseMustBeTheCompiledOne) {
  EXPECT_EQ(judge_torch({.compiled = "2.11.0", .loaded = "2.11.0+cu130"}).level, Level::kOk);
  const CheckResult other =
      judge_torch({.compiled = "2.11.0", .loaded = "2.9.1+cpu", .library = "lib/libtorch_cpu.so"});
  EXPECT_EQ(other.level, Level::kFailure);
  EXPECT_EQ(other.code, ExitCode::kUsage);
  EXPECT_TRUE(contains(other.text, "compiled for 2.11.0, 2.9.1+cpu is loaded (lib/libtorch_cpu.so)")) << other.text;
  EXPECT_TRUE(contains(other.cure, "LD_LIBRARY_PATH")) << other.cure;
}

TEST(Torch, OneThatDoesNotSayItsVersionIsFine) { EXPECT_EQ(judge_torch({.compiled = "2.11.0"}).level, Level::kOk); }

TEST(Torch, IsFoundBesideTheLoadedLibrary) {
  const TorchFacts facts = torch_facts();
  EXPECT_TRUE(contains(facts.library, "libtorch_cpu.so")) << facts.library;
  EXPECT_EQ(facts.loaded.substr(0, facts.loaded.find('+')), facts.compiled);
}

TEST(Cuda, VersionsAreReadFromTheText) {
  const auto pair = parse_cuda("the driver shows no GPU to this process (CUDA 13.0, driver 12.4, NCCL 2.28.9)");
  ASSERT_TRUE(pair.has_value());
  EXPECT_EQ(pair->runtime, 130);
  EXPECT_EQ(pair->driver, 124);
  EXPECT_FALSE(parse_cuda("no versions").has_value());
}

TEST(Gpus, WorkWhereVersionsFit) {
  const CheckResult result = judge_gpus(working());
  EXPECT_EQ(result.level, Level::kOk);
  EXPECT_TRUE(contains(result.text, "580.65.06")) << result.text;
}

TEST(Gpus, ADriverOlderThanTheRuntimeIsAFailureThatNamesBoth) {
  GpuFacts facts = working();
  facts.library_runs = false;
  facts.reason = facts.versions = "the CUDA driver shows no GPU to this process (CUDA 13.0, driver 12.4, NCCL 2.28.9)";
  facts.kernel_driver = "550.54.15";
  const CheckResult result = judge_gpus(facts);
  EXPECT_EQ(result.level, Level::kFailure);
  EXPECT_EQ(result.text,
            "the NVIDIA driver 550.54.15 runs CUDA up to 12.4, liblockstep_cuda.so was made for CUDA 13.0");
  EXPECT_TRUE(contains(result.cure, "CUDA 13.0 or newer")) << result.cure;
}

TEST(Gpus, AnOlderDriverOfTheSameMajorVersionIsFine) {
  GpuFacts facts = working();
  facts.versions = "CUDA 13.2, driver 13.0, NCCL 2.28.9";
  EXPECT_EQ(judge_gpus(facts).level, Level::kOk);
}

TEST(Gpus, NoDriverAtAllIsTold) {
  GpuFacts facts = working();
  facts.library_runs = false;
  facts.versions = "the CUDA driver shows no GPU to this process (CUDA 13.0, driver 0.0, NCCL 2.28.9)";
  EXPECT_TRUE(contains(judge_gpus(facts).text, "no NVIDIA driver"));
}

TEST(Gpus, ALibraryThatCannotBeLoadedSaysWhy) {
  GpuFacts facts = working();
  facts.library_runs = false;
  facts.versions = facts.reason = "liblockstep_cuda.so cannot be loaded: libnccl.so.2: cannot open shared object file";
  const CheckResult result = judge_gpus(facts);
  EXPECT_EQ(result.level, Level::kFailure);
  EXPECT_TRUE(contains(result.text, "libnccl.so.2")) << result.text;
}

TEST(Gpus, WithoutTheLibraryTheCpuIsUsedUnlessTheGpuWasAsked) {
  GpuFacts facts = working();
  facts.library_found = facts.library_runs = false;
  EXPECT_EQ(judge_gpus(facts).level, Level::kWarning);
  EXPECT_EQ(judge_gpus(facts).cure, "LOCKSTEP_GPU=1 make build");
  facts.wanted = true;
  EXPECT_EQ(judge_gpus(facts).level, Level::kFailure);
}

TEST(Gpus, AMachineWithoutAnyIsFineUnlessOneWasAsked) {
  EXPECT_EQ(judge_gpus({}).level, Level::kOk);
  EXPECT_EQ(judge_gpus({}).text, "none: ranks run on the CPU");
  EXPECT_EQ(judge_gpus({.wanted = true}).level, Level::kFailure);
  EXPECT_TRUE(contains(judge_gpus({.there = 4}).text, "hidden by CUDA_VISIBLE_DEVICES"));
}

TEST(Cpu, NamesTheDtypeThatIsFast) {
  EXPECT_TRUE(contains(judge_cpu("AVX-512", "some processor", true).text, "fastest dtype: bfloat16"));
  EXPECT_TRUE(contains(judge_cpu("AVX-512", "some processor", false).text, "fastest dtype: float32"));
}

TEST(Cpu, OldOnesAreAWarning) {
  EXPECT_EQ(judge_cpu("AVX-512", "some processor", true).level, Level::kOk);
  EXPECT_EQ(judge_cpu("AVX2", "", false).level, Level::kOk);
  EXPECT_EQ(judge_cpu("SSE4.2", "some processor", false).level, Level::kWarning);
}

}  // namespace
}  // namespace lockstep
