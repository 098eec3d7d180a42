# lockstep_prepare_headers(TARGET KIND LIBRARIES…): headers of others that most files include are read once for all targets
# of a kind that see the same libraries, not once a file: a quarter of the work of a build from nothing. Headers of ours are
# not among them, since a change of one would compile everything anew. A kind is what the compiler is told beside lockstep_flags.
option(LOCKSTEP_PREPARE "read the headers of others once a build, not once a file" ON)
set(LOCKSTEP_OPTIONS_hot "")
set(LOCKSTEP_OPTIONS_cold -O1)
set(LOCKSTEP_OPTIONS_test -O0)  # what tests compile themselves is called seldom: half off their compile time
set(LOCKSTEP_OPTIONS_large_test "")
set(CMAKE_PCH_WARN_INVALID OFF)  # a file whose own options do not fit reads the headers itself
set(LOCKSTEP_PREPARED_HEADERS <algorithm> <array> <filesystem> <fstream> <functional> <map> <memory> <optional> <set> <span>
  <sstream> <string> <string_view> <thread> <unordered_map> <vector> <fmt/format.h> <nlohmann/json.hpp>)
set(LOCKSTEP_PREPARED_HEADERS_torch_cpu <ATen/core/Tensor.h>)
set(LOCKSTEP_PREPARED_HEADERS_GTest::gtest <gtest/gtest.h>)

function(lockstep_prepare_headers target kind)
  target_compile_options(${target} PRIVATE ${LOCKSTEP_OPTIONS_${kind}})
  if(NOT LOCKSTEP_PREPARE)
    return()
  endif()
  string(MAKE_C_IDENTIFIER "headers_of_${kind}_${ARGN}" carrier)
  if(NOT TARGET ${carrier})
    set(empty "${CMAKE_BINARY_DIR}/${carrier}.cpp")
    file(CONFIGURE OUTPUT "${empty}" CONTENT "int main() { return 0; }\n")
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")  # whose code may be laid out otherwise than a library's
      add_executable(${carrier} EXCLUDE_FROM_ALL "${empty}")
    else()
      add_library(${carrier} OBJECT EXCLUDE_FROM_ALL "${empty}")
    endif()
    target_compile_options(${carrier} PRIVATE ${LOCKSTEP_OPTIONS_${kind}})
    target_link_libraries(${carrier} PRIVATE lockstep_flags fmt::fmt nlohmann_json::nlohmann_json ${ARGN})
    set(headers ${LOCKSTEP_PREPARED_HEADERS})
    foreach(library IN LISTS ARGN)
      list(APPEND headers ${LOCKSTEP_PREPARED_HEADERS_${library}})
    endforeach()
    target_precompile_headers(${carrier} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${carrier})
endfunction()
