# lockstep_room(NAME DEPENDS left… LINK libs… TEST_LINK libs…): one static library a room from its *.cpp, one test
# binary from its *_test.cpp. A room may depend only on rooms to its left, so a wrong arrow fails to link.
#
# `room_tests` builds every test binary. Under a sanitizer only the rooms that can have what it looks for: those that share
# data between threads, and those that handle raw memory or bytes from outside. The others would spend minutes to find nothing.
set(LOCKSTEP_THREADED_ROOMS base guard comm data)
set(LOCKSTEP_MEMORY_ROOMS base guard metric tensor comm text data model state exec infer)
add_custom_target(room_tests)

function(lockstep_room name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK;TEST_LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp" "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*/*.cpp")
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  if(NOT sources)  # a room of headers
    set(sources "${CMAKE_BINARY_DIR}/${name}_headers_only.cpp")
    file(WRITE "${sources}" "")
  endif()
  add_library(lockstep_${name} STATIC ${sources})
  foreach(left IN LISTS ARG_DEPENDS)
    target_link_libraries(lockstep_${name} PUBLIC lockstep_${left})
  endforeach()
  target_link_libraries(lockstep_${name} PUBLIC lockstep_flags ${ARG_LINK})
  if(LOCKSTEP_SANITIZE STREQUAL "thread" AND NOT name IN_LIST LOCKSTEP_THREADED_ROOMS)
    return()
  endif()
  if(LOCKSTEP_SANITIZE MATCHES "address" AND NOT name IN_LIST LOCKSTEP_MEMORY_ROOMS)
    return()
  endif()
  if(tests AND LOCKSTEP_TESTS)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE lockstep_${name} ${ARG_TEST_LINK} GTest::gtest GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE LOCKSTEP_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures")
    add_dependencies(room_tests ${name}_test)
    add_test(NAME ${name} COMMAND ${name}_test)
    set_tests_properties(${name} PROPERTIES LABELS room TIMEOUT 900 ENVIRONMENT "OMP_NUM_THREADS=1")
  endif()
endfunction()
