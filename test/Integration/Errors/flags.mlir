// Flags that flash-run cannot take. (Needs no device but the CPU.)

// RUN: printf '' | not flash-run 2>&1 | FileCheck %s --check-prefix=NO-FILE
// NO-FILE: error: expected an .mlir file, or a module on standard input
// RUN: not flash-run %s --device=cpu --function=one --bench 1 2>&1 | FileCheck %s --check-prefix=JOINED
// JOINED: error: expected one FILE but got '{{.*}}flags.mlir' and '1': a value is joined to its flag, as in --bench=1

// RUN: not flash-run %s --devise=cpu 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: Unknown command line argument '--devise=cpu'

// RUN: not flash-run %t.missing.mlir --device=cpu 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: error: cannot open input file '{{.*}}.missing.mlir': No such file or directory

// RUN: echo "func.func @f( {" > %t.broken.mlir
// RUN: not flash-run %t.broken.mlir --device=cpu 2>&1 | FileCheck %s --check-prefix=BROKEN
// BROKEN: broken.mlir:1:14: error: expected non-function type

// RUN: echo "module {}" > %t.empty.mlir
// RUN: not flash-run %t.empty.mlir --device=cpu 2>&1 | FileCheck %s --check-prefix=EMPTY
// EMPTY: error: the module has no public function with a body

// RUN: not flash-run %s --device=gpu --function=one 2>&1 | FileCheck %s --check-prefix=DEVICE
// DEVICE: error: expected --device to be auto, cuda, cuda:N, cpu or model:sm_XX but got 'gpu'

// RUN: not flash-run %s --device=cuda:x --function=one 2>&1 | FileCheck %s --check-prefix=ORDINAL
// ORDINAL: error: expected --device to be auto, cuda, cuda:N, cpu or model:sm_XX but got 'cuda:x'

// RUN: not flash-run %s --device=cpu 2>&1 | FileCheck %s --check-prefix=SEVERAL
// SEVERAL: error: the module has several functions: expected --function to be one of 'one', 'two', 'forever'

// RUN: not flash-run %s --device=cpu --function=three 2>&1 | FileCheck %s --check-prefix=FUNCTION
// FUNCTION: error: expected --function to be one of 'one', 'two', 'forever' but got 'three'

// RUN: not flash-run %s --device=cpu --function=one --bench=soon 2>&1 | FileCheck %s --check-prefix=BENCH
// BENCH: error: expected --bench to be a positive number of seconds but got 'soon'

// RUN: not flash-run %s --device=cpu --function=one --bench=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: error: expected --bench to be a positive number of seconds but got '-1'

// RUN: not flash-run %s --device=cpu --function=one --atol=-1 2>&1 | FileCheck %s --check-prefix=ATOL
// ATOL: error: expected --atol to be a number of at least 0 but got -1.00
// RUN: not flash-run %s --device=cpu --function=one --rtol=nan 2>&1 | FileCheck %s --check-prefix=RTOL
// RTOL: error: expected --rtol to be a number of at least 0 but got nan

// RUN: not flash-run - --device=cpu --function=one --input=@- < %s 2>&1 | FileCheck %s --check-prefix=READERS
// READERS: error: expected one reader of standard input but got several: a missing FILE, FILE '-' and each @- read it
// RUN: not flash-run %s --device=cpu --function=one --output=@- --json=- 2>&1 | FileCheck %s --check-prefix=WRITERS
// WRITERS: error: expected one writer of standard output but got several: each --output=@- and --json=- write to it
// RUN: not flash-run %s --device=cpu --function=one --json=%t.json --tune 2>&1 | FileCheck %s --check-prefix=TUNE
// TUNE: error: --json: expected a checked or timed run but got --tune, which writes only to --tuned-schedules
// RUN: not flash-run %s --device=cpu --function=one --json=%t.none/a.json 2>&1 | FileCheck %s --check-prefix=JSON
// JSON: error: cannot write '{{.*}}.none/a.json':

// RUN: not flash-run %s --device=cpu --function=one --timeout=0 2>&1 | FileCheck %s --check-prefix=TIMEOUT
// TIMEOUT: error: expected --timeout to be a positive number of seconds but got 0

// RUN: not flash-run %s --device=cpu --function=one --chip=sm_1 2>&1 | FileCheck %s --check-prefix=CHIP
// CHIP: error: --chip: expected chip 'sm_80', {{.*}} but got 'sm_1'
// RUN: not flash-run %s --device=cpu --function=one --chip=cpu 2>&1 | FileCheck %s --check-prefix=CPU-CHIP
// CPU-CHIP: error: --chip: expected chip 'sm_80', {{.*}} but got 'cpu'

// RUN: not flash-run %s --device=cpu --function=one --verify 2>&1 | FileCheck %s --check-prefix=VERIFY
// VERIFY: error: --verify: expected a flashattn.attention, attention_backward, combine or project in function 'one' or one that it calls but got none

// RUN: not flash-run %s --device=cpu --function=forever --input=zeros --timeout=1 2>&1 | FileCheck %s --check-prefix=FOREVER
// FOREVER: error: timed out after 1.00 seconds

// RUN: echo 'func.func private @nobody_has_this() func.func @f() { call @nobody_has_this() : () -> () return }' > %t.undefined.mlir
// RUN: not flash-run %t.undefined.mlir --device=cpu 2>&1 | FileCheck %s --check-prefix=UNDEFINED
// UNDEFINED: error: the module calls undefined functions: {{.*}}nobody_has_this

// RUN: not flash-run %s --device=cpu --function=one --dump-dir=%s/below-a-file 2>&1 | FileCheck %s --check-prefix=DUMP
// DUMP: error: cannot make directory '{{.*}}flags.mlir/below-a-file': {{.+}}

// A number of threads that is none is said, once; the run goes on.
// RUN: env FLASHATTN_NUM_THREADS=abc flash-run %s --device=cpu --function=one 2>&1 | FileCheck %s -DGOT=abc --check-prefix=THREADS
// RUN: env FLASHATTN_NUM_THREADS=0 flash-run %s --device=cpu --function=one 2>&1 | FileCheck %s -DGOT=0 --check-prefix=THREADS
// RUN: env FLASHATTN_NUM_THREADS=-1 flash-run %s --device=cpu --function=one 2>&1 | FileCheck %s -DGOT=-1 --check-prefix=THREADS
// THREADS: warning: expected FLASHATTN_NUM_THREADS to be a number from 1 to 1024 but got '[[GOT]]'; {{[0-9]+}} is used
// THREADS-NOT: warning:
// RUN: env FLASHATTN_NUM_THREADS=3 flash-run %s --device=cpu --function=one 2>&1 | FileCheck %s --check-prefix=THREE --implicit-check-not=warning
// THREE: device: cpu ({{.*}}, 3 threads)

func.func @one(%x: memref<4xf32>) {
  return
}

func.func @two(%x: memref<4xf32>) {
  return
}

// Halves a number for as long as it is below one.
func.func @forever(%x: memref<1xf32>) {
  %c0 = arith.constant 0 : index
  %half = arith.constant 0.5 : f32
  %one = arith.constant 1.0 : f32
  scf.while : () -> () {
    %v = memref.load %x[%c0] : memref<1xf32>
    %less = arith.cmpf olt, %v, %one : f32
    scf.condition(%less)
  } do {
    %v = memref.load %x[%c0] : memref<1xf32>
    %w = arith.mulf %v, %half : f32
    memref.store %w, %x[%c0] : memref<1xf32>
    scf.yield
  }
  return
}
