#ifndef FLASHATTN_ANALYSIS_PASSES_TD
#define FLASHATTN_ANALYSIS_PASSES_TD

include "mlir/Pass/PassBase.td"

def PrintMaskTiles : Pass<"flashattn-print-mask-tiles"> {
  let summary = "draw the tile maps of every attention op's mask";
  let description = [{
    Prints to the standard output one line per query tile and one character per
    key tile: `#` full (every pair visible), `+` partial, `.` not visited. More
    than 100 tiles along an axis are drawn several to a character: `#` where all
    of them are full, `.` where none is visited. The map is what the intervals of
    rule M3 say for the given sizes. Remarks where they are not exact, and warns
    about rows that see no key (rule M6).

    The gradients of keys and values go the other way, over the query tiles of a
    key tile: for `flashattn.attention_backward` a second map has a line per tile
    of `tile-m` keys and a character per tile of `tile-n` queries.

    Sizes come from the options, or else from the op: its static sizes, and the
    tiles of its schedule.

    Example: test/Analysis/print-mask-tiles.mlir
  }];
  let options = [
    Option<"nq", "nq", "int64_t", /*default=*/"0", "number of queries">,
    Option<"nk", "nk", "int64_t", /*default=*/"0", "number of keys">,
    Option<"tileM", "tile-m", "int64_t", /*default=*/"0",
           "queries of a tile; by default those of the op's schedule, or 64">,
    Option<"tileN", "tile-n", "int64_t", /*default=*/"0",
           "keys of a tile; by default those of the op's schedule, or 64">,
    Option<"offset", "offset", "int64_t", /*default=*/"0",
           "position of query 0; by default what the op says (rule A3)">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

#endif // FLASHATTN_ANALYSIS_PASSES_TD
