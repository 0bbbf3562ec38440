#ifndef FLASHATTN_ANALYSIS_PASSES_TD
#define FLASHATTN_ANALYSIS_PASSES_TD

include "mlir/Pass/PassBase.td"

def PrintMaskTiles : Pass<"flashattn-print-mask-tiles"> {
  let summary = "draw the tile maps of every attention op's mask";
  let description = [{
    Prints one line per query tile and one character per key tile to standard output: `#` for a full
    tile (every pair is visible), `+` for a partial tile, `.` for a tile that is not visited. If an
    axis has more than 100 tiles, a character represents several tiles: `#` if all of them are full,
    `.` if none is visited. The map shows the intervals of rule M3 for the given sizes. The pass
    emits a remark if the intervals are not exact, and a warning about rows that see no key (rule
    M6).

    For `flashattn.attention_backward`, a second map shows the transposed direction of dK and dV: it
    has one line per tile of `tile-m` keys and one character per tile of `tile-n` queries.

    Sizes are those of the options, or else the op's static sizes and the tiles of its schedule.

    Example: test/Analysis/print-mask-tiles.mlir
  }];
  let options = [
    Option<"nq", "nq", "int64_t", /*default=*/"0", "number of queries">,
    Option<"nk", "nk", "int64_t", /*default=*/"0", "number of keys">,
    Option<"tileM", "tile-m", "int64_t", /*default=*/"0",
           "queries of a tile; by default as in the op's schedule, or 64">,
    Option<"tileN", "tile-n", "int64_t", /*default=*/"0",
           "keys of a tile; by default as in the op's schedule, or 64">,
    Option<"offset", "offset", "int64_t", /*default=*/"0",
           "position of query 0; by default as the op defines it (rule A3)">,
    ListOption<"symbols", "symbols", "int64_t",
               "values of the operands of per_sequence, per_query and per_key, in this order, the "
               "same for all queries and keys">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

#endif // FLASHATTN_ANALYSIS_PASSES_TD
