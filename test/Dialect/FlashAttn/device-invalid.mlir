// RUN: flash-opt %s -split-input-file -verify-diagnostics

func.func @ballot(%c: i1) {
  // expected-error@+1 {{expected ballot to answer with 'i32' but got 'i1'}}
  %r = flashattn.vote ballot %c : i1
  return
}

// -----

func.func @any(%c: i1) {
  // expected-error@+1 {{expected any to answer with 'i1' but got 'i32'}}
  %r = flashattn.vote any %c : i32
  return
}

// -----

func.func @kind(%c: i1) {
  // expected-error@+2 {{expected ::mlir::flashattn::VoteKind to be one of: any, all, ballot}}
  // expected-error@+1 {{failed to parse FlashAttn_VoteKindAttr parameter}}
  %r = flashattn.vote most %c : i1
  return
}
