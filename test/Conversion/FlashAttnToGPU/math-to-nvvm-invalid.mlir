// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-math-to-nvvm

func.func @double(%x: f64) -> f64 {
  // expected-error@+1 {{'math.exp2' op has no lowering to PTX on 'f64'}}
  %y = math.exp2 %x : f64
  return %y : f64
}

// -----

func.func @remainder(%x: vector<4xf32>) -> vector<4xf32> {
  // expected-error@+1 {{'arith.remf' op has no lowering to PTX on 'vector<4xf32>'}}
  %y = arith.remf %x, %x : vector<4xf32>
  return %y : vector<4xf32>
}
