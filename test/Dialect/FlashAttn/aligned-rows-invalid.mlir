// RUN: flash-opt %s -split-input-file -verify-diagnostics

// expected-error@+1 {{expected 'flashattn.aligned_rows' on a memref but got argument 1 of type 'tensor<4xf32>'}}
func.func @f(%a: memref<4xf32> {flashattn.aligned_rows}, %b: tensor<4xf32> {flashattn.aligned_rows}) {
  return
}

// -----

// expected-error@+1 {{expected a unit attribute 'flashattn.aligned_rows' on argument 0 but got 16}}
func.func @f(%a: memref<4xf32> {flashattn.aligned_rows = 16}) {
  return
}

// -----

// expected-error@+1 {{expected no argument attribute of the flashattn dialect except 'flashattn.aligned_rows' but got 'flashattn.aligned' on argument 0}}
func.func @f(%a: memref<4xf32> {flashattn.aligned}) {
  return
}
