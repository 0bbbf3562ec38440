//===- flash-plugin.cpp - the dialect and the passes for stock mlir-opt ---===//

#include "flashattn/InitAll.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"

using namespace mlir;

static constexpr const char *pluginName = "FlashAttn";
static constexpr const char *pluginVersion = FLASHATTN_VERSION;

extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT DialectPluginLibraryInfo mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, pluginName, pluginVersion, [](DialectRegistry *registry) {
            flashattn::registerAllFlashAttnDialects(*registry);
            flashattn::registerAllFlashAttnExtensions(*registry);
          }};
}

extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, pluginName, pluginVersion,
          [] { flashattn::registerAllFlashAttnPasses(); }};
}
