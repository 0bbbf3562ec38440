// Standard input and output, and files of other types: what a pipe of programs needs.

// DEFINE: %{run} = flash-run %s --device=cpu --function=twice
// RUN: %{run} --input=4xf32=random:3 --output=@%t.npy --print-outputs | FileCheck %s --check-prefix=VALUES
// VALUES: output 0: 4xf32, min
// VALUES-NEXT: [{{-?[0-9.]+}}, {{-?[0-9.]+}}, {{-?[0-9.]+}}, {{-?[0-9.]+}}]

// The array alone is on standard output, the text on standard error.
// RUN: %{run} --input=4xf32=random:3 --output=@- 2> %t.text | cmp - %t.npy
// RUN: FileCheck %s --check-prefix=TEXT < %t.text
// TEXT: output 0: 4xf32
// RUN: %{run} --input=@- --output=@%t.four.npy < %t.npy
// RUN: %{run} --input=4xf32=random:3 --output=@- 2> %t.text | %{run} --input=@- --expected-output=@%t.four.npy | FileCheck %s --check-prefix=PASS
// PASS: expected-output 0: max error 0.000e+00{{.*}}: PASS
// RUN: %{run} --input=4xf32=random:3 --expected-output=@- < %t.npy | FileCheck %s --check-prefix=PASS

// The module too.
// RUN: flash-run --device=cpu --function=twice --input=4xf32=random:3 --expected-output=@%t.npy < %s | FileCheck %s --check-prefix=PASS
// RUN: flash-run - --device=cpu --function=twice --input=4xf32=random:3 --expected-output=@%t.npy < %s | FileCheck %s --check-prefix=PASS
// RUN: echo "func.func @f(" | not flash-run 2>&1 | FileCheck %s --check-prefix=STDIN
// STDIN: <stdin>:1:14: error:

// What was checked and timed, for programs.
// RUN: %{run} --input=4xf32=random:3 --expected-output=@%t.npy --bench=0.001 --json=%t.json
// RUN: %python -c "import json, sys; r = json.load(open(sys.argv[1])); assert r['pass'] and r['device'] == 'cpu' and r['function'] == 'twice' and r['bench']['median_ms'] > 0 and r['expected_output'] == [{'elements': 4, 'max_error': 0, 'not_finite': 0, 'wrong': 0}], r" %t.json
// RUN: not %{run} --input=4xf32=ones --expected-output=@%t.npy --json=- 2> %t.text | %python -c "import json, sys; r = json.load(sys.stdin); assert not r['pass'] and r['expected_output'][0]['wrong'] == 4, r"

// float64 and float16 files where no value changes, in either order; and against outputs of any float type.
// RUN: flash-run %s --device=cpu --function=widen --input=2x3xf16=random:5 --output=@%t.f64.npy --output=@%t.f16.npy
// RUN: flash-run %s --device=cpu --function=widen --input=@%t.f64.npy --expected-output=@%t.f16.npy --expected-output=@%t.f64.npy | FileCheck %s --check-prefix=BOTH
// BOTH: expected-output 0: max error 0.000e+00, tolerance 1.000e-05 {{.*}}: PASS
// BOTH: expected-output 1: max error 0.000e+00, tolerance 2.000e-03 {{.*}}: PASS
// RUN: flash-run %s --device=cpu --function=widen --input=@%t.f16.npy --expected-output=@%t.f64.npy | FileCheck %s --check-prefix=PASS
// RUN: not flash-run %s --device=cpu --function=twice --input=@%t.f64.npy 2>&1 | FileCheck %s --check-prefix=RANK
// RANK: expected ?xf32 for argument 0 of function 'twice' but the file holds 2x3xf32
// RUN: sed -e "s/False/True /" -e s/"2, 3"/"3, 2"/ %t.f64.npy > %t.fortran.npy
// RUN: flash-run %s --device=cpu --function=turn --input=@%t.fortran.npy --expected-output=@%t.f64.npy | FileCheck %s --check-prefix=PASS
// RUN: flash-run %s --device=cpu --function=third --output=@%t.third.npy
// RUN: not %{run} --input=@%t.third.npy 2>&1 | FileCheck %s --check-prefix=INEXACT
// INEXACT: expected ?xf32 for argument 0 of function 'twice' but the file holds 4xf64, whose values f32 cannot all hold: round them before, as with .astype(numpy.float32)

// NaN where a number should be, and where no pair is left to have an error.
// RUN: not %{run} --input=4xf32=poison --expected-output=@%t.npy | FileCheck %s --check-prefix=NAN
// NAN: expected-output 0: max error 0.000e+00 without the 4 elements that are not finite here or there, {{.*}}4 of 4 elements beyond it (the first at [0]: expected {{.*}} but got nan): FAIL

func.func @twice(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = arith.addf %x, %x : tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func @widen(%x: tensor<2x3xf16>) -> (tensor<2x3xf64>, tensor<2x3xf16>) {
  %y = arith.extf %x : tensor<2x3xf16> to tensor<2x3xf64>
  return %y, %x : tensor<2x3xf64>, tensor<2x3xf16>
}
func.func @turn(%x: tensor<3x2xf64>) -> tensor<2x3xf64> {
  %e = tensor.empty() : tensor<2x3xf64>
  %y = linalg.transpose ins(%x : tensor<3x2xf64>) outs(%e : tensor<2x3xf64>) permutation = [1, 0]
  return %y : tensor<2x3xf64>
}
func.func @third() -> tensor<4xf64> {
  %third = arith.constant 0.33333333333333331 : f64
  %x = tensor.splat %third : tensor<4xf64>
  return %x : tensor<4xf64>
}
