# lockstep_torch_target(FOLDER FMT): the target `torch_cpu` over the LibTorch in a wheel's FOLDER: libtorch_cpu + libc10 only,
# so that neither a CUDA toolkit nor the GPU wheels are needed to build or to run on CPUs. The names that libtorch_cpu leaves
# open belong to wheels that only GPU runs load, hence --allow-shlib-undefined. The wheel brings headers of another fmt than
# the system's library: those in the folder FMT are found first.
function(lockstep_torch_target folder fmt)
  if(TARGET torch_cpu)
    return()
  endif()
  add_library(torch_cpu INTERFACE IMPORTED GLOBAL)
  target_include_directories(torch_cpu SYSTEM INTERFACE "${fmt}" "${folder}/include" "${folder}/include/torch/csrc/api/include")
  target_compile_definitions(torch_cpu INTERFACE AT_PER_OPERATOR_HEADERS USE_C10D_GLOO USE_DISTRIBUTED)
  target_link_libraries(torch_cpu INTERFACE "${folder}/lib/libtorch_cpu.so" "${folder}/lib/libc10.so")
  target_link_options(torch_cpu INTERFACE -Wl,--allow-shlib-undefined "-Wl,-rpath,${folder}/lib")
endfunction()
