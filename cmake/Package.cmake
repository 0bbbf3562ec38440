# Installs the project. find_package(FlashAttn) then defines the libraries as targets FlashAttn::…,
# and pkg-config finds the C library as flashattn.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(flashattn_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/flashattn")

get_property(flashattn_libraries GLOBAL PROPERTY FLASHATTN_LIBRARIES)
set_target_properties(flashattn_options PROPERTIES EXPORT_NAME FlashAttnOptions)
install(TARGETS flashattn_options ${flashattn_libraries} EXPORT FlashAttnTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
foreach(tool flash-compile flash-opt flash-run flash-lsp-server)
  if(TARGET ${tool})
    # The installed tools find LLVM's shared libraries where the build found them.
    set_target_properties(${tool} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
    install(TARGETS ${tool} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endforeach()
install(TARGETS FlashAttnCPURuntime EXPORT FlashAttnTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
# The runtime of code compiled ahead of time, and the function that adds such code to a project, in
# an export set without MLIR.
install(TARGETS FlashAttnAOTRuntime EXPORT FlashAttnAOTTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT FlashAttnAOTTargets NAMESPACE FlashAttn:: DESTINATION "${flashattn_package_dir}")
install(FILES cmake/FlashAttnKernels.cmake DESTINATION "${flashattn_package_dir}")
# The C API, for C and for Python: the header and one shared library, in an export set without MLIR.
# `cmake --install … --component capi` installs only these.
install(TARGETS FlashAttnC EXPORT FlashAttnCTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT capi)
# ONNX Runtime loads this library by its path; nothing links to it.
install(TARGETS FlashAttnONNX LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT capi)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/flashattn-c"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT capi)
install(EXPORT FlashAttnCTargets NAMESPACE FlashAttn:: DESTINATION "${flashattn_package_dir}"
  COMPONENT capi)
# The prefix is relative to the .pc file, so that an installed tree can be moved.
file(RELATIVE_PATH flashattn_pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(cmake/flashattn.pc.in flashattn.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/flashattn.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT capi)
if(TARGET flash-plugin)
  install(TARGETS flash-plugin LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/flashattn"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h" PATTERN "*.td")
install(DIRECTORY "${PROJECT_BINARY_DIR}/include/flashattn"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.inc"
  PATTERN "CMakeFiles" EXCLUDE)
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")

configure_package_config_file(cmake/FlashAttnConfig.cmake.in FlashAttnConfig.cmake
  INSTALL_DESTINATION "${flashattn_package_dir}" PATH_VARS CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(FlashAttnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/FlashAttnConfig.cmake"
  "${PROJECT_BINARY_DIR}/FlashAttnConfigVersion.cmake" DESTINATION "${flashattn_package_dir}"
  COMPONENT capi)
install(EXPORT FlashAttnTargets NAMESPACE FlashAttn:: DESTINATION "${flashattn_package_dir}")

# The installed tree as an archive, for machines without the checkout: `cpack --config
# BUILD/CPackConfig.cmake`.
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_VENDOR "flash-mlir")
set(CPACK_PACKAGE_FILE_NAME "flash-mlir-dev-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
include(CPack)
