# Finds LibTorch inside a Python wheel and makes the target `torch_cpu` (TorchTarget.cmake).
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

# A folder with the system's fmt alone (TorchTarget.cmake).
find_path(LOCKSTEP_FMT fmt/format.h REQUIRED)
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/system_fmt")
file(CREATE_LINK "${LOCKSTEP_FMT}/fmt" "${CMAKE_BINARY_DIR}/system_fmt/fmt" SYMBOLIC)

include(TorchTarget)
lockstep_torch_target("${LOCKSTEP_TORCH}" "${CMAKE_BINARY_DIR}/system_fmt")
