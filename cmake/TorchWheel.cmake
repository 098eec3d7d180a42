# Finds LibTorch inside a Python wheel and makes the target `torch_cpu`: libtorch_cpu + libc10 only, so that neither a
# CUDA toolkit nor the GPU wheels are needed to build or to run on CPUs. The names that libtorch_cpu leaves open belong
# to wheels that only GPU runs load, hence --allow-shlib-undefined.
#
# LOCKSTEP_TORCH: the wheel's folder (…/site-packages/torch). Default: the project's private virtual environment.
if(NOT LOCKSTEP_TORCH)
  file(GLOB LOCKSTEP_TORCH "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
endif()
if(NOT EXISTS "${LOCKSTEP_TORCH}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch not found (looked in '${LOCKSTEP_TORCH}'). Run `make setup`, or pass -DLOCKSTEP_TORCH=/path/to/site-packages/torch")
endif()
file(STRINGS "${LOCKSTEP_TORCH}/version.py" torch_version_line REGEX "^__version__")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" LOCKSTEP_TORCH_VERSION "${torch_version_line}")
message(STATUS "LibTorch ${LOCKSTEP_TORCH_VERSION}")

get_filename_component(torch_site "${LOCKSTEP_TORCH}" DIRECTORY)
file(GLOB torch_nvidia_libs "${torch_site}/nvidia/*/lib")

# The wheel brings headers of another fmt than the system's library: the system's must be found first.
find_path(LOCKSTEP_FMT fmt/format.h REQUIRED)
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/system_fmt")
file(CREATE_LINK "${LOCKSTEP_FMT}/fmt" "${CMAKE_BINARY_DIR}/system_fmt/fmt" SYMBOLIC)

add_library(torch_cpu INTERFACE)
target_include_directories(torch_cpu SYSTEM INTERFACE "${CMAKE_BINARY_DIR}/system_fmt"
  "${LOCKSTEP_TORCH}/include" "${LOCKSTEP_TORCH}/include/torch/csrc/api/include")
target_compile_definitions(torch_cpu INTERFACE AT_PER_OPERATOR_HEADERS USE_C10D_GLOO USE_DISTRIBUTED)
target_link_libraries(torch_cpu INTERFACE "${LOCKSTEP_TORCH}/lib/libtorch_cpu.so" "${LOCKSTEP_TORCH}/lib/libc10.so")
target_link_options(torch_cpu INTERFACE -Wl,--allow-shlib-undefined "-Wl,-rpath,${LOCKSTEP_TORCH}/lib")
