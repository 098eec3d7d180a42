// Continuous batching: what a row says, and that it depends on nobody else.
#include "lockstep/infer/decode_slots.h"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "lockstep/comm/together.h"
#include "lockstep/infer/generator.h"
#include "lockstep/testing/ranks.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace {

