// RUN: flash-opt %s -split-input-file -verify-diagnostics

func.func @tile(%attn_mask: memref<1x1x?x?xi1>, %bounds: memref<1x1x?x2xi32>, %tiles: memref<1x1x?x?xi32>) {
  // expected-error@+1 {{expected 3 positive sizes of 'tile' but got [1, 0, 64]}}
  flashattn.list_tiles tile [1, 0, 64] ins(%attn_mask : memref<1x1x?x?xi1>) outs(%bounds, %tiles : memref<1x1x?x2xi32>, memref<1x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %t, %t, %t, %t
  }
  return
}

// -----

func.func @bounds(%attn_mask: memref<1x1x?x?xi1>, %bounds: memref<1x1x?x3xi32>, %tiles: memref<1x1x?x?xi32>) {
  // expected-error@+1 {{expected a last dimension of 'bounds' of size 2 but got 'memref<1x1x?x3xi32>'}}
  flashattn.list_tiles tile [1, 64, 64] ins(%attn_mask : memref<1x1x?x?xi1>) outs(%bounds, %tiles : memref<1x1x?x3xi32>, memref<1x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %t, %t, %t, %t
  }
  return
}

// -----

func.func @lists(%attn_mask: memref<1x1x?x?xi1>, %bounds: memref<1x4x?x2xi32>, %tiles: memref<1x1x?x?xi32>) {
  // expected-error@+1 {{expected dimension 1 of 'tiles' to be that of 'bounds', 'memref<1x4x?x2xi32>', but got 'memref<1x1x?x?xi32>'}}
  flashattn.list_tiles tile [1, 64, 64] ins(%attn_mask : memref<1x1x?x?xi1>) outs(%bounds, %tiles : memref<1x4x?x2xi32>, memref<1x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %t, %t, %t, %t
  }
  return
}

// -----

func.func @region(%attn_mask: memref<1x1x?x?xi1>, %bounds: memref<1x1x?x2xi32>, %tiles: memref<1x1x?x?xi32>) {
  // expected-error@+1 {{expected a region of ('index', 'index', 'index') but got ('index', 'i32')}}
  flashattn.list_tiles tile [1, 64, 64] ins(%attn_mask : memref<1x1x?x?xi1>) outs(%bounds, %tiles : memref<1x1x?x2xi32>, memref<1x1x?x?xi32>) within {
  ^bb0(%b: index, %h: i32):
    flashattn.yield_intervals %b, %b, %b, %b
  }
  return
}

// -----

func.func @end(%attn_mask: memref<1x1x?x?xi1>, %bounds: memref<1x1x?x2xi32>, %tiles: memref<1x1x?x?xi32>) {
  flashattn.list_tiles tile [1, 64, 64] ins(%attn_mask : memref<1x1x?x?xi1>) outs(%bounds, %tiles : memref<1x1x?x2xi32>, memref<1x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    // expected-error@+1 {{expected 'flashattn.yield_intervals' at the end of a region but got 'llvm.unreachable'}}
    llvm.unreachable
  }
  return
}

// -----

func.func @count(%attn_mask: memref<1x1x?x?xi1>, %bounds: memref<1x1x?x2xi32>, %tiles: memref<1x1x?x?xi32>) {
  flashattn.list_tiles tile [1, 64, 64] ins(%attn_mask : memref<1x1x?x?xi1>) outs(%bounds, %tiles : memref<1x1x?x2xi32>, memref<1x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    // expected-error@+1 {{expected 4 bounds for each interval but got 3}}
    flashattn.yield_intervals %t, %t, %t
  }
  return
}

// -----

func.func @neither(%bounds: memref<1x1x?x2xi32>, %tiles: memref<1x1x?x?xi32>) {
  // expected-error@+1 {{expected either 'attn_mask' or a region 'test' but got neither}}
  flashattn.list_tiles tile [1, 64, 64] outs(%bounds, %tiles : memref<1x1x?x2xi32>, memref<1x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %t, %t, %t, %t
  }
  return
}

// -----

func.func @both(%attn_mask: memref<1x1x?x?xi1>, %bounds: memref<1x1x?x2xi32>, %tiles: memref<1x1x?x?xi32>) {
  // expected-error@+1 {{expected either 'attn_mask' or a region 'test' but got both}}
  flashattn.list_tiles tile [1, 64, 64] ins(%attn_mask : memref<1x1x?x?xi1>) outs(%bounds, %tiles : memref<1x1x?x2xi32>, memref<1x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %t, %t, %t, %t
  } test {
  ^bb0(%b: index, %h: index, %t: index, %tile: index):
    flashattn.yield_intervals %t, %t, %t, %t
  }
  return
}

// -----

func.func @test_region(%bounds: memref<1x1x?x2xi32>, %tiles: memref<1x1x?x?xi32>) {
  // expected-error@+1 {{expected a region of ('index', 'index', 'index', 'index') but got ('index', 'index', 'index')}}
  flashattn.list_tiles tile [1, 64, 64] outs(%bounds, %tiles : memref<1x1x?x2xi32>, memref<1x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %t, %t, %t, %t
  } test {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %t, %t, %t, %t
  }
  return
}

// -----

func.func @range_size(%values: memref<1x1x?xi32>, %ranges: memref<1x1x?x3xi32>) {
  // expected-error@+1 {{expected a last dimension of 'ranges' of size 2 but got 'memref<1x1x?x3xi32>'}}
  flashattn.tile_ranges ins(%values : memref<1x1x?xi32>) outs(%ranges : memref<1x1x?x3xi32>) of {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %b, %t, %t
  }
  return
}

// -----

func.func @range_rows(%values: memref<1x1x?xi32>, %ranges: memref<1x1x?x2xi32>, %copies: memref<1x1x?xf32>) {
  flashattn.tile_ranges ins(%values : memref<1x1x?xi32>) outs(%ranges, %copies : memref<1x1x?x2xi32>, memref<1x1x?xf32>) of {
  ^bb0(%b: index, %h: index, %t: index):
    // expected-error@+1 {{expected 4 values but got 3}}
    flashattn.yield_intervals %b, %t, %t
  }
  return
}
