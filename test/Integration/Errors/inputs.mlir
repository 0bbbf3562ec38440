// Inputs and outputs that do not fit the function: both what was expected and what came.

// DEFINE: %{run} = flash-run %s --device=cpu --function=scale

// RUN: not %{run} --input=4x4xf32=ones --input=4x4xf32=poison --input=4xf32=ones 2>&1 | FileCheck %s --check-prefix=MANY
// MANY: error: expected at most 2 --input for function 'scale' but got 3

// RUN: not %{run} 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: argument 0 of function 'scale' of type ?x4xf32 needs an --input

// RUN: not %{run} --input=4x4xf33=ones 2>&1 | FileCheck %s --check-prefix=TYPE
// TYPE: error: --input=4x4xf33=ones: expected a type such as 2x32x1024x128xf16 but got '4x4xf33'

// RUN: not %{run} --input=4xyx4xf32=ones 2>&1 | FileCheck %s --check-prefix=SIZE
// SIZE: error: --input=4xyx4xf32=ones: expected sizes of at least 0 but got 'y'

// RUN: not %{run} --input=-4x4xf32=ones 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: expected sizes of at least 0 but got '-4'

// RUN: not %{run} --input=4x5xf32=ones 2>&1 | FileCheck %s --check-prefix=SHAPE
// SHAPE: error: --input=4x5xf32=ones: expected ?x4xf32 for argument 0 of function 'scale' but got 4x5xf32

// RUN: not %{run} --input=4xf32=ones 2>&1 | FileCheck %s --check-prefix=RANK
// RANK: expected ?x4xf32 for argument 0 of function 'scale' but got 4xf32

// RUN: not %{run} --input=4x4xf16=ones 2>&1 | FileCheck %s --check-prefix=ELEMENT
// ELEMENT: expected ?x4xf32 for argument 0 of function 'scale' but got 4x4xf16

// RUN: not %{run} --input=ones 2>&1 | FileCheck %s --check-prefix=SIZES
// SIZES: error: --input=ones: expected sizes, as in TYPE=ones, for argument 0 of function 'scale', which is ?x4xf32

// RUN: not %{run} --input=4x4xf32=twos --input=4x4xf32=poison 2>&1 | FileCheck %s --check-prefix=SOURCE
// SOURCE: error: --input=4x4xf32=twos: expected @FILE.npy, random[:SEED], zeros, ones, poison or numbers but got 'twos'

// RUN: not %{run} --input=4x4xf32=random:x --input=4x4xf32=poison 2>&1 | FileCheck %s --check-prefix=SEED
// SEED: expected random:SEED with a whole number but got 'random:x'

// RUN: not %{run} --input=9000000000000000000x4xf32=ones --input=4x4xf32=poison 2>&1 | FileCheck %s --check-prefix=HUGE
// HUGE: error: argument 0 of function 'scale': a tensor of type 9000000000000000000x4xf32 has too many elements to address

// RUN: not %{run} --input=100000000000000x4xf32=ones --input=4x4xf32=poison 2>&1 | FileCheck %s --check-prefix=MEMORY
// MEMORY: out of host memory: a tensor of type 100000000000000x4xf32 needs 1600000000000000 bytes

// RUN: not %{run} --input=@%t.missing.npy 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: cannot read '{{.*}}.missing.npy': No such file or directory

// A device may never end: no more of one is read than an array's header asks for.
// RUN: not %{run} --input=@/dev/zero 2>&1 | FileCheck %s --check-prefix=NOT-NPY
// RUN: not %{run} --input=4x4xf32=ones --expected-output=@/dev/urandom 2>&1 | FileCheck %s --check-prefix=NOT-NPY
// RUN: not flash-run /dev/zero 2>&1 | FileCheck %s --check-prefix=DEVICE
// RUN: not flash-opt /dev/zero 2>&1 | FileCheck %s --check-prefix=DEVICE
// RUN: not flash-compile /dev/urandom --chip=cpu -o %t.o 2>&1 | FileCheck %s --check-prefix=DEVICE
// DEVICE: expected a file but got the device '/dev/{{zero|urandom}}'
// RUN: not %{run} --input=@%s 2>&1 | FileCheck %s --check-prefix=NOT-NPY
// NOT-NPY: cannot read '{{.*}}': expected an .npy file but got something else

// RUN: %{run} --input=4x4xf32=ones --input=4x4xf32=poison --output=@%t.npy
// RUN: head -c 150 %t.npy > %t.cut.npy
// RUN: not %{run} --input=@%t.cut.npy 2>&1 | FileCheck %s --check-prefix=CUT
// CUT: cannot read '{{.*}}.cut.npy': expected 64 bytes of values for 4x4xf32 but got 22

// From a pipe the same, and nothing may stand behind the values.
// RUN: cat %t.cut.npy | not %{run} --input=@- 2>&1 | FileCheck %s --check-prefix=CUT-PIPE
// CUT-PIPE: cannot read '-': expected 64 bytes of values for 4x4xf32 but got 22
// RUN: cat %t.npy %t.npy > %t.twice.npy
// RUN: not %{run} --input=@%t.twice.npy 2>&1 | FileCheck %s --check-prefix=LONG
// LONG: cannot read '{{.*}}.twice.npy': expected 64 bytes of values for 4x4xf32 but got 256
// RUN: cat %t.npy %t.npy | not %{run} --input=@- 2>&1 | FileCheck %s --check-prefix=MORE
// MORE: cannot read '-': expected 64 bytes of values for 4x4xf32 but got more
// RUN: printf '\223NUMPY\002\000\377\377\377\377' > %t.long.npy
// RUN: not %{run} --input=@%t.long.npy 2>&1 | FileCheck %s --check-prefix=LONG-HEADER
// LONG-HEADER: cannot read '{{.*}}.long.npy': expected a header of at most 1048576 bytes but got 4294967295
// RUN: head -c 50 %t.npy > %t.head.npy
// RUN: not %{run} --input=@%t.head.npy 2>&1 | FileCheck %s --check-prefix=HEADER
// HEADER: cannot read '{{.*}}.head.npy': expected a header of 118 bytes but got 40

// RUN: sed -e "s/<f4/<c8/" %t.npy > %t.complex.npy
// RUN: not %{run} --input=@%t.complex.npy 2>&1 | FileCheck %s --check-prefix=DTYPE
// DTYPE: expected elements of type <f2, <f4, <f8, <u2 (bf16), |u1 (f8), |b1, |i1, <i4 or <i8 but got <c8: save the array as one of these types, as with .astype(numpy.float32)

// NumPy lacks floats of 8 bits: a file has their bits, or values that they can hold.
// RUN: sed -e "s/<f4/|u1/" %t.npy > %t.bits.npy
// RUN: not %{run} --input=@%t.bits.npy 2>&1 | FileCheck %s --check-prefix=BITS
// BITS: expected elements of type {{.*}} but got |u1 for a tensor of f32: save the array
// RUN: flash-run %s --device=cpu --function=eight --input="4xf8E5M2=0.5 -1.25 inf 57344" --output=@%t.eight.npy
// RUN: flash-run %s --device=cpu --function=eight --input=@%t.eight.npy --expected-output=@%t.eight.npy | FileCheck %s --check-prefix=EIGHT
// EIGHT: output 0: 4xf8E5M2, {{.*}}, 1 not finite, values 0.5000 -1.2500 INF 57344.0000
// EIGHT: expected-output 0: max error 0.0{{.*}}: PASS
// RUN: flash-run %s --device=cpu --function=wide --input="4xf32=0.5 -1.25 57344 3" --output=@%t.wide.npy
// RUN: flash-run %s --device=cpu --function=eight --input=@%t.wide.npy | FileCheck %s --check-prefix=HELD
// HELD: output 0: 4xf8E5M2, {{.*}} values 0.5000 -1.2500 57344.0000 3.0000
// RUN: flash-run %s --device=cpu --function=wide --input="4xf32=0.5 -1.25 57344 3.1" --output=@%t.wide.npy
// RUN: not flash-run %s --device=cpu --function=eight --input=@%t.wide.npy 2>&1 | FileCheck %s --check-prefix=NOT-HELD
// NOT-HELD: but the file holds 4xf32, whose values f8E5M2 cannot all hold: write their bits as uint8

// RUN: sed -e "s/<f4/<i4/" %t.npy > %t.int.npy
// RUN: not %{run} --input=@%t.int.npy 2>&1 | FileCheck %s --check-prefix=FILE-TYPE
// FILE-TYPE: expected ?x4xf32 for argument 0 of function 'scale' but the file holds 4x4xi32

// RUN: not %{run} --input=8x4xf32=@%t.npy 2>&1 | FileCheck %s --check-prefix=FILE-SHAPE
// FILE-SHAPE: expected 8x4xf32 for argument 0 of function 'scale' but the file holds 4x4xf32

// RUN: not %{run} --input=4x4xf32=ones --input=4x4xf32=poison --output=@%t.npy --output=@%t.npy 2>&1 | FileCheck %s --check-prefix=OUTPUTS
// OUTPUTS: error: expected at most 1 --output for function 'scale' but got 2

// RUN: not %{run} --input=4x4xf32=ones --input=4x4xf32=poison --output=%t.npy 2>&1 | FileCheck %s --check-prefix=AT
// AT: error: --output: expected @FILE.npy but got '{{.*}}.npy'

// RUN: not %{run} --input=4x4xf32=ones --input=4x4xf32=poison --output=@%t.none/o.npy 2>&1 | FileCheck %s --check-prefix=NO-DIR
// NO-DIR: error: cannot write '{{.*}}.none/o.npy': {{.*}}No such file or directory

// RUN: not %{run} --input=8x4xf32=ones --input=8x4xf32=poison --expected-output=@%t.npy 2>&1 | FileCheck %s --check-prefix=EXPECTED
// EXPECTED: error: --expected-output 0: the file holds 4x4xf32 but output 0 is 8x4xf32

// Not as expected is no error but a check that fails, and an exit status.
// RUN: not %{run} --input=4x4xf32=zeros --input=4x4xf32=poison --expected-output=@%t.npy 2>&1 | FileCheck %s --check-prefix=DIFFERENT
// DIFFERENT: expected-output 0: max error 2.000e+00, {{.*}} 16 of 16 elements exceed it (the first at [0,0]: expected 2{{.*}} but got 0{{.*}}): FAIL

// RUN: not %{run} --input=8x4xf32=ones --input=4x4xf32=poison 2>&1 | FileCheck %s --check-prefix=GUARD
// GUARD: error: memory after a buffer of 64 bytes was written, at byte 64 from the buffer's start

// RUN: not flash-run %s --device=cpu --function=scalar 2>&1 | FileCheck %s --check-prefix=SCALAR
// SCALAR: error: argument 0 of function 'scalar' of type f32 needs an --input

// RUN: not flash-run %s --device=cpu --function=scalar --input=many 2>&1 | FileCheck %s --check-prefix=NUMBER
// NUMBER: error: --input=many: expected @FILE.npy, random[:SEED], zeros, ones, poison or numbers but got 'many'

// Numbers: one for all elements, or one for each.
// RUN: not %{run} --input='4x4xf32=1 2 3' 2>&1 | FileCheck %s --check-prefix=COUNT
// COUNT: error: --input=4x4xf32=1 2 3: expected 1 or 16 numbers but got 3
// RUN: not flash-run %s --device=cpu --function=whole --input=2xi8=128 2>&1 | FileCheck %s -DGOT=128.00 --check-prefix=WHOLE
// RUN: not flash-run %s --device=cpu --function=whole --input=2xi8=0.5 2>&1 | FileCheck %s -DGOT=0.50 --check-prefix=WHOLE
// WHOLE: error: --input=2xi8={{.*}}: expected numbers in the range of i8 but got [[GOT]]

// Lengths that positions have no room for.
// RUN: not flash-run %s --device=cpu --function=long --input=1x1x2147483648x1xf16=poison 2>&1 | FileCheck %s --check-prefix=LENGTH
// LENGTH: error: the inputs do not fit together: expected {{.*}} of '{{[qk]}}' to be at most 2147483647 but got 2147483648

// RUN: not flash-run %s --device=cpu --function=complex 2>&1 | FileCheck %s --check-prefix=COMPLEX
// COMPLEX: error: argument 0 of function 'complex': expected f16, bf16, {{.*}} but got memref<4xcomplex<f32>>

// RUN: not flash-run %s --device=cpu --function=strided 2>&1 | FileCheck %s --check-prefix=STRIDED
// STRIDED: error: argument 0 of function 'strided': expected a contiguous memref but got memref<4x4xf32, strided<[8, 1]>>

func.func @scale(%x: memref<?x4xf32>, %y: memref<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %two = arith.constant 2.0 : f32
  %rows = memref.dim %x, %c0 : memref<?x4xf32>
  scf.for %i = %c0 to %rows step %c1 {
    scf.for %j = %c0 to %c4 step %c1 {
      %v = memref.load %x[%i, %j] : memref<?x4xf32>
      %w = arith.mulf %v, %two : f32
      memref.store %w, %y[%i, %j] : memref<?x4xf32>
    }
  }
  return
}

func.func @scalar(%s: f32, %y: memref<1xf32>) {
  %c0 = arith.constant 0 : index
  memref.store %s, %y[%c0] : memref<1xf32>
  return
}

func.func @whole(%x: memref<2xi8>) {
  return
}

func.func @long(%q: tensor<1x1x?x1xf16>) -> tensor<1x1x?x1xf16> {
  %o = flashattn.attention ins(%q, %q, %q : tensor<1x1x?x1xf16>, tensor<1x1x?x1xf16>, tensor<1x1x?x1xf16>)
    outs(%q : tensor<1x1x?x1xf16>) -> tensor<1x1x?x1xf16>
  return %o : tensor<1x1x?x1xf16>
}

func.func @complex(%x: memref<4xcomplex<f32>>) {
  return
}

func.func @strided(%x: memref<4x4xf32, strided<[8, 1]>>) {
  return
}

func.func @eight(%x: tensor<4xf8E5M2>) -> tensor<4xf8E5M2> {
  return %x : tensor<4xf8E5M2>
}

func.func @wide(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
