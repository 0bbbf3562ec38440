// RUN: flash-opt %s | flash-opt | FileCheck %s --check-prefix=PARSE
// RUN: flash-opt %s -flashattn-select-schedule=chip=sm_90a -flashattn-tile | FileCheck %s --check-prefix=TILE
// RUN: flash-opt %s -flashattn-select-schedule=chip=sm_90a | FileCheck %s --check-prefix=SCHEDULE

// Keys in pages of 16 rows: rules P1 and P2.

// PARSE-LABEL: func @causal
// PARSE: kv_len(%{{.*}} : memref<?xi32>) page_table(%{{.*}} : memref<?x?xi32>) outs
// SCHEDULE-LABEL: func @causal
// SCHEDULE: hopper
// The pages of the last row of all programs of a block, 3 tiles of 64 queries, are read.
// TILE-LABEL: func @causal
// TILE: flashattn.program
// TILE: %[[ROWS:.*]] = flashattn.paged_rows below %{{.*}} in %[[TABLE:.*]][%[[B:.*]]] size 16 from_pages(%{{.*}}) to_pages(%{{.*}}) : memref<?x?xi32>
// TILE: %[[VROWS:.*]] = flashattn.paged_rows below %{{.*}} in %[[TABLE]][%[[B]]] size 16
// TILE: flashattn.load_tile %{{.*}}[%c0{{.*}}, %{{.*}}, %{{.*}}, %c0{{.*}}] dims [2, 3] rows %[[ROWS]]
// TILE: flashattn.load_tile %{{.*}}[%c0{{.*}}, %{{.*}}, %{{.*}}, %c0{{.*}}] dims [2, 3] rows %[[VROWS]]
func.func @causal(%q: memref<?x8x?x128xbf16>, %o: memref<?x8x?x128xbf16>, %k: memref<?x2x16x128xbf16>, %t: memref<?x?xi32>, %n: memref<?xi32>) {
  flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %k : memref<?x8x?x128xbf16>, memref<?x2x16x128xbf16>, memref<?x2x16x128xbf16>)
      page_table(%t : memref<?x?xi32>) kv_len(%n : memref<?xi32>) outs(%o : memref<?x8x?x128xbf16>)
  return
}

// Each part of a mask has a range of pages.
// TILE-LABEL: func @sinks
// TILE: flashattn.paged_rows {{.*}} from_pages(%{{.*}}, %{{.*}}) to_pages(%{{.*}}, %{{.*}})
func.func @sinks(%q: memref<?x8x?x128xbf16>, %o: memref<?x8x?x128xbf16>, %k: memref<?x2x16x128xbf16>, %t: memref<?x?xi32>, %n: memref<?xi32>) {
  flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 99, right = 0>,
                                              #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      ins(%q, %k, %k : memref<?x8x?x128xbf16>, memref<?x2x16x128xbf16>, memref<?x2x16x128xbf16>)
      page_table(%t : memref<?x?xi32>) kv_len(%n : memref<?xi32>) outs(%o : memref<?x8x?x128xbf16>)
  return
}

// P3: the first key is behind padding. Copies of whole pieces cannot begin there.
// SCHEDULE-LABEL: func @leftpad
// SCHEDULE-NOT: hopper
// TILE-LABEL: func @leftpad
// TILE: flashattn.paged_rows below %{{.*}} first %{{.*}} in
func.func @leftpad(%q: memref<?x8x?x128xbf16>, %o: memref<?x8x?x128xbf16>, %k: memref<?x2x16x128xbf16>, %t: memref<?x?xi32>, %n: memref<?xi32>,
                   %p: memref<?xi32>) {
  flashattn.attention ins(%q, %k, %k : memref<?x8x?x128xbf16>, memref<?x2x16x128xbf16>, memref<?x2x16x128xbf16>)
      leftpad_k(%p : memref<?xi32>) page_table(%t : memref<?x?xi32>) kv_len(%n : memref<?xi32>)
      outs(%o : memref<?x8x?x128xbf16>)
  return
}

// Nor can they have 20 rows.
// SCHEDULE-LABEL: func @odd_pages
// SCHEDULE-NOT: hopper
func.func @odd_pages(%q: memref<?x8x?x128xbf16>, %o: memref<?x8x?x128xbf16>, %k: memref<?x2x20x128xbf16>, %t: memref<?x?xi32>, %n: memref<?xi32>) {
  flashattn.attention ins(%q, %k, %k : memref<?x8x?x128xbf16>, memref<?x2x20x128xbf16>, memref<?x2x20x128xbf16>)
      page_table(%t : memref<?x?xi32>) kv_len(%n : memref<?xi32>) outs(%o : memref<?x8x?x128xbf16>)
  return
}

// P4: a table of one column selects a slot of any length.
// SCHEDULE-LABEL: func @slots
// SCHEDULE: hopper
// TILE-LABEL: func @slots
// TILE-NOT: flashattn.paged_rows
// TILE: %[[ENTRY:.*]] = memref.load %{{.*}}[%{{.*}}, %c0{{.*}}] : memref<?x1xi32>
// TILE: %[[SLOT:.*]] = arith.index_cast %[[ENTRY]]
// TILE: flashattn.load_tile %{{.*}}[%[[SLOT]],
func.func @slots(%q: memref<?x8x?x128xbf16>, %o: memref<?x8x?x128xbf16>, %k: memref<?x2x?x128xbf16>, %t: memref<?x1xi32>, %n: memref<?xi32>) {
  flashattn.attention ins(%q, %k, %k : memref<?x8x?x128xbf16>, memref<?x2x?x128xbf16>, memref<?x2x?x128xbf16>)
      page_table(%t : memref<?x1xi32>) kv_len(%n : memref<?xi32>) outs(%o : memref<?x8x?x128xbf16>)
  return
}
