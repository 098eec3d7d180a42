# cmake --install: the binary, the CUDA library where it was built, the libraries of all rooms but cli, their headers, and
# a package that other CMake projects find. lockstep::lockstep is all of it.
include(CMakePackageConfigHelpers)

add_library(lockstep_lockstep INTERFACE)
target_link_libraries(lockstep_lockstep INTERFACE lockstep_tasks)
set_target_properties(lockstep_lockstep PROPERTIES EXPORT_NAME lockstep)
add_library(lockstep::lockstep ALIAS lockstep_lockstep)

set(lockstep_rooms lockstep_flags)
foreach(room base guard metric tensor comm text data model plan zoo state exec train infer watch doctor session tasks)
  list(APPEND lockstep_rooms lockstep_${room})
endforeach()
add_custom_target(install_libraries DEPENDS lockstep_tasks)  # what `make install` builds beside the binary

install(TARGETS lockstep RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
set_target_properties(lockstep PROPERTIES INSTALL_RPATH "${LOCKSTEP_TORCH}/lib")
if(TARGET lockstep_cuda)
  install(TARGETS lockstep_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program OPTIONAL)
  get_target_property(cuda_rpath lockstep_cuda BUILD_RPATH)
  set_target_properties(lockstep_cuda PROPERTIES INSTALL_RPATH "${cuda_rpath}")
endif()
if(TARGET lockstep_arrow)
  install(TARGETS lockstep_arrow LIBRARY DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program OPTIONAL)
  get_target_property(arrow_rpath lockstep_arrow BUILD_RPATH)
  set_target_properties(lockstep_arrow PROPERTIES INSTALL_RPATH "${arrow_rpath}")
endif()
install(TARGETS lockstep_lockstep ${lockstep_rooms} EXPORT lockstepTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library)
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep" COMPONENT library)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/lockstep" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT library
  FILES_MATCHING PATTERN "*.h" PATTERN "test_*.h" EXCLUDE
  PATTERN cli EXCLUDE PATTERN cuda EXCLUDE PATTERN arrow EXCLUDE PATTERN testing EXCLUDE PATTERN verify EXCLUDE)
install(DIRECTORY "${CMAKE_BINARY_DIR}/system_fmt" DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep" COMPONENT library)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in" "${CMAKE_BINARY_DIR}/lockstepConfig.cmake"
  INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/lockstepConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_SOURCE_DIR}/cmake/TorchTarget.cmake" "${CMAKE_BINARY_DIR}/lockstepConfig.cmake" "${CMAKE_BINARY_DIR}/lockstepConfigVersion.cmake"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep" COMPONENT library)
