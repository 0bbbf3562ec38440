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

// Whatever becomes of the run: what the compiler says of a module, and what stopped it.
// RUN: echo 'func.func @f(%%x: memref<4x!none>) { return }' > %t.broken.mlir
// RUN: not flash-run %t.broken.mlir --device=cpu --json=%t.broken.json
// RUN: %python -c "import json, sys; r = json.load(open(sys.argv[1])); d, = r['diagnostics']; assert not r['pass'] and d['severity'] == 'error' and d['place'].endswith('.broken.mlir:1:32') and d['message'], r" %t.broken.json
// RUN: not %{run} --input=4xi32=1 --json=%t.refused.json
// RUN: %python -c "import json, sys; r = json.load(open(sys.argv[1])); assert not r['pass'] and 'expected ?xf32 for argument 0' in r['error'] and 'diagnostics' not in r, r" %t.refused.json
// RUN: not flash-run %s --device=cpu --function=forever --input=1xf32=0 --timeout=0.5 --json=%t.late.json
// RUN: %python -c "import json, sys; r = json.load(open(sys.argv[1])); assert r == {'pass': False, 'error': 'timed out after 0.50 seconds'}, r" %t.late.json
// RUN: not flash-run %s --device=cpu --function=attention --chip=sm_80 --json=%t.chip.json
// RUN: %python -c "import json, sys; r = json.load(open(sys.argv[1])); assert 'expected a CUDA device to run code for sm_80' in r['error'], r" %t.chip.json
// Errors and TFLOP/s of what was verified.
// RUN: flash-run %s --device=cpu --function=attention --verify --bench=0.001 --json=- 2> %t.text | %python -c "import json, sys; r = json.load(sys.stdin); op, = r['ops']; result, = op['results']; b = r['bench']; assert r['verify'] and op['rows'] == op['of_rows'] == 16 and op['runs'] == 1 and 0 < result['max_error'] <= result['tolerance'] and result['name'] == 'o' and result['pass'] and result['frobenius'] <= result['frobenius_bound'], r; assert abs(b['tflops'] - b['operations'] / b['median_ms'] / 1e9) < 1e-6 and b['visible_pairs'] == 136 and b['gigabytes_per_second'] > 0, r"
// RUN: not flash-run %s --device=cpu --function=attention --verify --verify-plant-fault=0.o:3 --json=%t.wrong.json
// RUN: %python -c "import json, sys; r = json.load(open(sys.argv[1])); assert not r['pass'] and not r['verify'] and not r['ops'][0]['results'][0]['pass'], r" %t.wrong.json

// Numbers as iree-run-module takes them.
// RUN: %{run} --input=4xf32=0.5 | FileCheck %s --check-prefix=SPLAT
// SPLAT: output 0: 4xf32{{.*}}values 1.0000 1.0000 1.0000 1.0000
// RUN: %{run} --input='4xf32=1 2 3.5 -4' | FileCheck %s --check-prefix=LIST
// RUN: %{run} --input='4xf32=[1, 2], [3.5, -4]' | FileCheck %s --check-prefix=LIST
// LIST: output 0: 4xf32{{.*}}values 2.0000 4.0000 7.0000 -8.0000

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
// NAN: expected-output 0: max error 0.000e+00 without the 4 elements that are not finite in either, {{.*}}4 of 4 elements exceed it (the first at [0]: expected {{.*}} but got nan): FAIL

func.func @twice(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = arith.addf %x, %x : tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func @widen(%x: tensor<2x3xf16>) -> (tensor<2x3xf64>, tensor<2x3xf16>) {
  %y = arith.extf %x : tensor<2x3xf16> to tensor<2x3xf64>
  return %y, %x : tensor<2x3xf64>, tensor<2x3xf16>
}
func.func @forever(%x: memref<1xf32>) {
  %c0 = arith.constant 0 : index
  scf.while : () -> () {
    %v = memref.load %x[%c0] : memref<1xf32>
    %less = arith.cmpf oeq, %v, %v : f32
    scf.condition(%less)
  } do {
    %v = memref.load %x[%c0] : memref<1xf32>
    memref.store %v, %x[%c0] : memref<1xf32>
    scf.yield
  }
  return
}
func.func @attention(%q: tensor<1x1x16x8xf32>) -> tensor<1x1x16x8xf32> {
  %e = tensor.empty() : tensor<1x1x16x8xf32>
  %o = flashattn.attention mask(causal) ins(%q, %q, %q : tensor<1x1x16x8xf32>, tensor<1x1x16x8xf32>, tensor<1x1x16x8xf32>) outs(%e : tensor<1x1x16x8xf32>) -> tensor<1x1x16x8xf32>
  return %o : tensor<1x1x16x8xf32>
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
