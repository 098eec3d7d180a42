#include "lockstep/base/machine.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr const char* kMeminfo =
    "MemTotal:       16384 kB\nMemFree:         1024 kB\nMemAvailable:    8192 kB\nSwapTotal:           0 kB\n";

TEST(MachineMemory, IsTheMachinesWhereNoGroupLimitsIt) {
  const MachineMemory memory = machine_memory_from(kMeminfo, -1, -1);
  EXPECT_EQ(memory.total_bytes, 16384 * 1024);
  EXPECT_EQ(memory.available_bytes, 8192 * 1024);
  EXPECT_FALSE(memory.limited);
}

TEST(MachineMemory, IsNoMoreThanTheGroupAllows) {
  const MachineMemory memory = machine_memory_from(kMeminfo, 4096 * 1024, 1024 * 1024);
  EXPECT_EQ(memory.total_bytes, 4096 * 1024);
  EXPECT_EQ(memory.available_bytes, 3072 * 1024);
  EXPECT_TRUE(memory.limited);
}

TEST(MachineMemory, AGroupThatIsFullHasNothingLeft) {
  EXPECT_EQ(machine_memory_from(kMeminfo, 4096, 8192).available_bytes, 0);
}

TEST(MachineMemory, TheHugeNumberOfOldKernelsIsNoLimit) {
  EXPECT_FALSE(machine_memory_from(kMeminfo, int64_t{0x7FFFFFFFFFFFF000}, 0).limited);
}

TEST(MachineMemory, AKernelThatTellsNothingGivesZeros) { EXPECT_EQ(machine_memory_from("", -1, -1).total_bytes, 0); }

TEST(CpuQuota, IsReadInCores) {
  EXPECT_EQ(parse_cpu_quota("max 100000"), 0);
  EXPECT_EQ(parse_cpu_quota("150000 100000"), 1.5);
  EXPECT_EQ(parse_cpu_quota("-1 100000"), 0);  // version 1 without a limit
  EXPECT_EQ(parse_cpu_quota(""), 0);
}

TEST(AskedThreads, AreThoseOfTheFirstLevel) {
  const auto asked = [](const std::string& text) { return asked_threads(Env({{"OMP_NUM_THREADS", text}})); };
  EXPECT_EQ(asked(""), std::nullopt);
  EXPECT_EQ(asked("4"), 4);
  EXPECT_EQ(asked("4,2"), 4);
  for (const char* text : {"0", "-1", "99999999999", "4x", ",", "many"})
    EXPECT_THROW((void)asked(text), UserError) << text;
}

TEST(UsableCores, AreAtLeastOne) { EXPECT_GE(usable_cores(), 1); }

TEST(Machine, TellsFromTheFlagsWhetherBfloat16IsMultiplied) {
  const Env env;
  EXPECT_TRUE(multiplies_bfloat16("processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 sha_ni\nbugs\t\t: none\n", env));
  EXPECT_TRUE(multiplies_bfloat16("flags\t\t: fpu avx512f amx_bf16 amx_tile\n", env));
  EXPECT_FALSE(multiplies_bfloat16("flags\t\t: fpu avx2 avx512f avx512_vnni\n", env));
  EXPECT_FALSE(multiplies_bfloat16("", env));
}

TEST(Machine, KnowsWhoMadeTheProcessor) {
  EXPECT_TRUE(is_intel("processor\t: 0\nvendor_id\t: GenuineIntel\n"));
  EXPECT_FALSE(is_intel("processor\t: 0\nvendor_id\t: AuthenticAMD\n"));
  EXPECT_FALSE(is_intel(""));
}

TEST(Machine, DoesNotCountInstructionsThatLibTorchMayNotUse) {
  const auto with = [](const char* name, const char* value) {
    return multiplies_bfloat16("flags\t\t: avx512f avx512_bf16\n",
                               Env(std::map<std::string, std::string>{{name, value}}));
  };
  for (const auto* isa : {"AVX2", "avx512_core", "AVX512_CORE_VNNI", "SSE41"}) {
    EXPECT_FALSE(with("ONEDNN_MAX_CPU_ISA", isa)) << isa;
    EXPECT_FALSE(with("DNNL_MAX_CPU_ISA", isa)) << isa;
  }
  for (const auto* isa : {"ALL", "AVX512_CORE_BF16", "AVX512_CORE_AMX", "", "AVX9"}) {
    EXPECT_TRUE(with("ONEDNN_MAX_CPU_ISA", isa)) << isa;
  }
  EXPECT_FALSE(with("ATEN_CPU_CAPABILITY", "avx2"));
  EXPECT_FALSE(with("ATEN_CPU_CAPABILITY", "default"));
  EXPECT_TRUE(with("ATEN_CPU_CAPABILITY", "avx512"));
}

}  // namespace
}  // namespace lockstep
