//===- flash-opt.cpp - runs passes on .mlir files --------------------------===//

#include "flashattn/InitAll.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

using namespace mlir;

int main(int argc, char **argv) {
  DialectRegistry registry;
  flashattn::registerAllFlashAttnDialects(registry);
  flashattn::registerAllFlashAttnExtensions(registry);
  flashattn::registerAllFlashAttnPasses();
  return asMainReturnCode(MlirOptMain(argc, argv, "flash-mlir optimizer driver\n", registry));
}
