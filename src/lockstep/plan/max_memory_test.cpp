#include "lockstep/plan/max_memory.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string refusal(const std::string& text, int num_devices = 2) {
  try {
    parse_max_memory(text, num_devices);
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(MaxMemory, ReadsSizesInBothSystems) {
  EXPECT_EQ(parse_bytes("10GiB", "--x"), int64_t{10} << 30);
  EXPECT_EQ(parse_bytes("1.5 gib", "--x"), int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("10GB", "--x"), 10'000'000'000);
  EXPECT_EQ(parse_bytes("512KiB", "--x"), 512 << 10);
  EXPECT_EQ(parse_bytes("1024", "--x"), 1024);
  EXPECT_EQ(parse_bytes("0", "--x"), 0);
  for (const char* bad : {"", "GiB", "-1GiB", "10 apples", "1e30GiB", "nan"}) {
    EXPECT_THROW(parse_bytes(bad, "--x"), UserError) << bad;
  }
}

TEST(MaxMemory, ReadsAListOfDevices) {
  const std::vector<DeviceLimit> expected{
      {0, int64_t{10} << 30}, {1, int64_t{20} << 30}, {kCpuDevice, int64_t{64} << 30}};
  EXPECT_EQ(parse_max_memory("0:10GiB,1:20GiB,cpu:64GiB", 2), expected);
  EXPECT_EQ(parse_max_memory("cpu:64GiB, cuda:1:20GiB, virtual:0:10GiB", 2), expected) << "in the order of devices";
  EXPECT_EQ(parse_max_memory(R"({"0": "10GiB", "1": 21474836480, "cpu": "64GiB"})", 2), expected);
}

TEST(MaxMemory, ReadsOneSizeForEveryDevice) {
  EXPECT_EQ(parse_max_memory("1KiB", 2), (std::vector<DeviceLimit>{{0, 1024}, {1, 1024}}));
}

TEST(MaxMemory, RefusesWhatIsNotThereOrTwice) {
  EXPECT_NE(refusal("2:1GiB").find("device 2 is not there: this rank has 2 devices, 0 to 1"), std::string::npos);
  EXPECT_NE(refusal("0:1GiB,0:2GiB").find("device 0 is named twice"), std::string::npos);
  EXPECT_NE(refusal(R"({"0": "1MB", "0": "10GiB"})").find("--max_memory: \"0\" stands there twice"), std::string::npos);
  EXPECT_NE(refusal(R"({"0": "1MB", "cuda:0": "10GiB"})").find("device 0 is named twice"), std::string::npos);
  EXPECT_NE(refusal("gpu:1GiB").find("found \"gpu\""), std::string::npos);
  EXPECT_NE(refusal("0:much").find("found \"much\""), std::string::npos);
  EXPECT_NE(refusal("0:1GiB,7GiB").find("expected DEVICE:SIZE"), std::string::npos);
  EXPECT_NE(refusal("disk:1GiB").find("use cpu"), std::string::npos);
  EXPECT_NE(refusal("").find("expected DEVICE:SIZE"), std::string::npos);
}

TEST(MaxMemory, SaysWhereJsonIsBrokenAndWhichFileIsMissing) {
  EXPECT_EQ(refusal(" {\"0\": 1GiB}"),
            "--max_memory: line 1 column 9: not valid JSON (12 bytes read); hint: for example "
            "'{\"0\": \"10GiB\", \"cpu\": \"64GiB\"}', in single quotes for a shell");
  EXPECT_NE(refusal("absent.json").find("--max_memory absent.json: no such file"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
