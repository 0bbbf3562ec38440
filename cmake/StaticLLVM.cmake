# Makes MLIR's static archives link LLVM's static archives. Debian's exported targets name the
# shared libLLVM instead, which is missing on the machines that use a bundle.

# Components that the passes, the JIT and the two back ends may use. The linker takes only those in
# use.
llvm_map_components_to_libnames(flashattn_llvm_archives
  AsmParser BitReader BitWriter Core ExecutionEngine InstCombine IPO IRReader Linker MC
  NVPTX NVPTXCodeGen NVPTXDesc NVPTXInfo OrcJIT Passes Remarks ScalarOpts Support Target TargetParser
  TransformUtils Vectorize X86 X86AsmParser X86CodeGen X86Desc X86Info)
list(REMOVE_DUPLICATES flashattn_llvm_archives)
add_library(flashattn_llvm INTERFACE)
target_link_libraries(flashattn_llvm INTERFACE ${flashattn_llvm_archives})

# Besides glibc and libstdc++, the linked code needs only zlib and zstd. Z3, libxml2, libffi and
# libedit serve libraries of LLVM that no tool here links; --as-needed drops them.
find_library(FLASHATTN_ZLIB_ARCHIVE NAMES libz.a REQUIRED)
find_library(FLASHATTN_ZSTD_ARCHIVE NAMES libzstd.a REQUIRED)

function(flashattn_replace_links target)
  get_target_property(links ${target} INTERFACE_LINK_LIBRARIES)
  if(NOT links)
    return()
  endif()
  list(TRANSFORM links REPLACE "^LLVM$" "flashattn_llvm")
  list(TRANSFORM links REPLACE "^ZLIB::ZLIB$" "${FLASHATTN_ZLIB_ARCHIVE}")
  list(TRANSFORM links REPLACE "^zstd::libzstd_shared$" "${FLASHATTN_ZSTD_ARCHIVE}")
  set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${links}")
endfunction()

foreach(target ${MLIR_EXPORTED_TARGETS})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "STATIC_LIBRARY" OR type STREQUAL "INTERFACE_LIBRARY")
    flashattn_replace_links(${target})
  endif()
endforeach()
flashattn_replace_links(LLVMSupport)

# The target machine may have an older libstdc++, or none.
add_link_options($<$<LINK_LANGUAGE:CXX>:-static-libstdc++> -static-libgcc)
