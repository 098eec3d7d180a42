# lockstep_room(NAME DEPENDS left… LINK libs… TEST_LINK libs…): one static library a room from its *.cpp, one test
# binary from its *_test.cpp. A room may depend only on rooms to its left, so a wrong arrow fails to link.
#
# `room_tests` builds every test binary; under the thread sanitizer those of rooms that share data between threads alone, since
# the others would spend minutes to find nothing.
set(LOCKSTEP_THREADED_ROOMS base guard tensor comm text data state exec infer)
# Rooms whose tests stay in one process of one thread: two of them may run at a time (tools/run_tests.sh).
set(LOCKSTEP_LIGHT_ROOMS base tensor metric text model plan zoo state doctor cli)
# Rooms that read words, draw pages and call others: nothing of theirs is hot, and -O1 takes a third off their compile time.
set(LOCKSTEP_COLD_ROOMS watch doctor session tasks verify cli)
add_custom_target(room_tests)

# lockstep_unity(ROOM SOURCES…): sets `sources` to what is compiled in their place: files that include several of them,
# written by tools/unity.py, which sees to it that each means what it means alone. Files with flags of their own, or marked
# SKIP_UNITY_BUILD_INCLUSION, are not touched.
option(LOCKSTEP_UNITY "compile several files of a room as one: less work from nothing, more after a change" ON)
set(LOCKSTEP_UNITY_FILES 12 CACHE STRING "at most so many files are compiled as one")
find_program(LOCKSTEP_PYTHON python3 REQUIRED)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tools/unity.py")
function(lockstep_unity room)
  if(NOT LOCKSTEP_UNITY)
    return()
  endif()
  set(alone "")
  set(together "")
  foreach(source IN LISTS ARGN)
    get_source_file_property(own_flags "${source}" COMPILE_OPTIONS)
    get_source_file_property(by_itself "${source}" SKIP_UNITY_BUILD_INCLUSION)
    if(own_flags OR by_itself)
      list(APPEND alone "${source}")
    else()
      list(APPEND together "${source}")
    endif()
  endforeach()
  execute_process(COMMAND "${LOCKSTEP_PYTHON}" -B "${PROJECT_SOURCE_DIR}/tools/unity.py" "${CMAKE_BINARY_DIR}/unity" ${room}
      ${LOCKSTEP_UNITY_FILES} ${together}
    OUTPUT_VARIABLE together OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" together "${together}")
  set(sources ${alone} ${together} PARENT_SCOPE)
endfunction()

function(lockstep_room name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK;TEST_LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp" "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*/*.cpp")
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  if(NOT sources)  # a room of headers
    set(sources "${CMAKE_BINARY_DIR}/${name}_headers_only.cpp")
    file(WRITE "${sources}" "")
  else()
    lockstep_unity(${name} ${sources})
  endif()
  add_library(lockstep_${name} STATIC ${sources})
  foreach(left IN LISTS ARG_DEPENDS)
    target_link_libraries(lockstep_${name} PUBLIC lockstep_${left})
  endforeach()
  target_link_libraries(lockstep_${name} PUBLIC lockstep_flags ${ARG_LINK})
  if(name IN_LIST LOCKSTEP_COLD_ROOMS)
    target_compile_options(lockstep_${name} PRIVATE -O1)
  endif()
  if(LOCKSTEP_UNITY)  # a type of an unnamed namespace as a member is right in a .cpp, also in one that is included
    target_compile_options(lockstep_${name} PRIVATE -Wno-subobject-linkage)
  endif()
  if(LOCKSTEP_SANITIZE STREQUAL "thread" AND NOT name IN_LIST LOCKSTEP_THREADED_ROOMS)
    return()
  endif()
  if(tests AND LOCKSTEP_TESTS)
    set(sources ${tests})
    lockstep_unity(${name}_test ${tests})
    add_executable(${name}_test ${sources})
    target_link_libraries(${name}_test PRIVATE lockstep_${name} ${ARG_TEST_LINK} GTest::gtest GTest::gtest_main)
    if(LOCKSTEP_UNITY)
      target_compile_options(${name}_test PRIVATE -Wno-subobject-linkage)
    endif()
    if(LOCKSTEP_SANITIZE MATCHES "address")  # a third off their compile time; the thread sanitizer makes them too slow for that
      target_compile_options(${name}_test PRIVATE -O0)
    endif()
    target_compile_definitions(${name}_test PRIVATE LOCKSTEP_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures")
    add_dependencies(room_tests ${name}_test)
    set(processors 2)
    if(name IN_LIST LOCKSTEP_LIGHT_ROOMS)
      set(processors 1)
    endif()
    add_test(NAME ${name} COMMAND ${name}_test)
    # testing::TempDir(): tests name their folders there, and those of another room or build must not be taken for them.
    set(folder "${CMAKE_BINARY_DIR}/tmp/${name}")
    file(MAKE_DIRECTORY "${folder}")
    set_tests_properties(${name} PROPERTIES LABELS room PROCESSORS ${processors} TIMEOUT 900
      ENVIRONMENT "OMP_NUM_THREADS=1;TEST_TMPDIR=${folder}")
  endif()
endfunction()
