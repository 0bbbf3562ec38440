# Makes MLIR's exported static archives link LLVM's static archives: as Debian exports them they name
# the shared libLLVM, which the machine that a bundle goes to does not have.

# What the passes, the JIT and the two back ends can reach. The linker takes only what is used.
llvm_map_components_to_libnames(flashattn_llvm_archives
  AsmParser BitReader BitWriter Core ExecutionEngine InstCombine IPO IRReader Linker MC
  NVPTX NVPTXCodeGen NVPTXDesc NVPTXInfo OrcJIT Passes Remarks ScalarOpts Support Target TargetParser
  TransformUtils Vectorize X86 X86AsmParser X86CodeGen X86Desc X86Info)
list(REMOVE_DUPLICATES flashattn_llvm_archives)
add_library(flashattn_llvm INTERFACE)
target_link_libraries(flashattn_llvm INTERFACE ${flashattn_llvm_archives})

# zlib and zstd are the only libraries beside glibc and libstdc++ that the code in use needs. Z3, libxml2,
# libffi and libedit serve parts of LLVM that no tool here links; --as-needed leaves them out.
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

# The machine may have an older libstdc++ than this one, or none.
add_link_options($<$<LINK_LANGUAGE:CXX>:-static-libstdc++> -static-libgcc)
