// RUN: flash-opt %s -convert-hopper-host-to-llvm -verify-diagnostics

func.func @chosen(%k: memref<128x64xf16>, %first: i1) {
  // expected-error @+1 {{expected only kernel launches to use the map but got 'arith.select'}}
  %a = hopper.make_tensor_map %k row_dim(0)
      : memref<128x64xf16> to !hopper.tensor_map<80x64xf16>
  %map = arith.select %first, %a, %a : !hopper.tensor_map<80x64xf16>
  return
}
