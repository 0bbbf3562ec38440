# flashattn_add_kernel(target file.mlir CHIPS chip... [FUNCTION name] [CPU level] [CUBIN])
#
# Adds the static library `target`: the functions of an .mlir file, compiled ahead of time for the
# chips (sm_90a, sm_80, cpu, …; see flash-compile --help). Code that links it includes <target.h>
# and needs neither LLVM nor the C++ library.
function(flashattn_add_kernel target file)
  cmake_parse_arguments(ARG "CUBIN" "FUNCTION;CPU" "CHIPS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "flashattn_add_kernel(${target}): expected CHIPS, FUNCTION, CPU or CUBIN but "
      "got ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_CHIPS)
    message(FATAL_ERROR "flashattn_add_kernel(${target}): expected CHIPS, as CHIPS sm_90a sm_80 cpu, "
      "but got none")
  endif()
  list(JOIN ARG_CHIPS "," chips)
  set(flags "--chip=${chips}")
  if(ARG_FUNCTION)
    list(APPEND flags "--function=${ARG_FUNCTION}")
  endif()
  if(ARG_CPU)
    list(APPEND flags "--cpu=${ARG_CPU}")
  endif()
  if(ARG_CUBIN)
    list(APPEND flags --cubin)
  endif()
  get_filename_component(source "${file}" ABSOLUTE)
  # A separate folder, so that the include path of users contains only this header.
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${target}.flashattn")
  file(MAKE_DIRECTORY "${folder}")
  set(object "${folder}/${target}.o")
  add_custom_command(OUTPUT "${object}" "${folder}/${target}.h"
    COMMAND "${FLASHATTN_COMPILE}" "${source}" ${flags} -o "${object}"
    DEPENDS "${source}" "${FLASHATTN_COMPILE}"
    COMMENT "Compiling ${file} for ${chips}" VERBATIM)
  # The header must exist before a user's source file includes it.
  add_custom_target(${target}-kernels DEPENDS "${object}" "${folder}/${target}.h")
  add_library(${target} STATIC "${object}")
  set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
  add_dependencies(${target} ${target}-kernels)
  target_include_directories(${target} INTERFACE "${folder}")
  target_link_libraries(${target} INTERFACE FlashAttn::FlashAttnAOTRuntime)
endfunction()
