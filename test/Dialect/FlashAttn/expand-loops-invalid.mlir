// RUN: flash-opt %s -flashattn-expand-loops -split-input-file -verify-diagnostics

// What a stage that lags reads must be handed to it, or computed from its own step's numbers.

func.func @memory_of_a_stage(%n: index, %m: memref<?xf32>, %x: vector<4xf32>) -> vector<4xf32> {
  %r = flashattn.tile_loop (%i, %j) in [(%n, %n, %n, %n), (%n, %n, %n, %n)] iter_args(%a = %x)
      -> (vector<4xf32>) {
    flashattn.tile_yield %a : vector<4xf32>
  }
  %c0 = arith.constant 0 : index
  %s = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%a = %r) -> (vector<4xf32>) {
    %loaded = memref.load %m[%i] : memref<?xf32>
    flashattn.stage lag 1
    // expected-error @+1 {{'vector.broadcast' op expected a lagging stage to read only tiles of earlier stages, or scalars computed from the tile's number, but got 'f32'}}
    %b = vector.broadcast %loaded : f32 to vector<4xf32>
    %sum = arith.addf %a, %b : vector<4xf32>
    flashattn.tile_yield %sum : vector<4xf32>
  }
  return %s : vector<4xf32>
}

// -----

func.func @state_before_it_is_there(%n: index, %x: vector<4xf32>) -> vector<4xf32> {
  %c0 = arith.constant 0 : index
  %s = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%a = %x) -> (vector<4xf32>) {
    // expected-error @+1 {{'arith.mulf' op expected a lagging stage to read only tiles of earlier stages, or scalars computed from the tile's number, but got 'vector<4xf32>'}}
    %early = arith.mulf %a, %a : vector<4xf32>
    flashattn.stage lag 1
    %sum = arith.addf %early, %early : vector<4xf32>
    flashattn.tile_yield %sum : vector<4xf32>
  }
  return %s : vector<4xf32>
}
