#ifndef FLASHATTN_ANALYSIS_PASSES_TD
#define FLASHATTN_ANALYSIS_PASSES_TD

include "mlir/Pass/PassBase.td"

def PrintMaskTiles : Pass<"flashattn-print-mask-tiles"> {
  let summary = "draw the tile map of every attention op's mask";
  let description = [{
    Prints to the standard output one line per query tile and one character per
    key tile: `#` full (every pair visible), `+` partial, `.` not visited. The
    map is what the intervals of rule M3 say for the given sizes. Warns about
    rows that see no key for any length (rule M6).

    Sizes come from the options, or else from the op's static sizes.
  }];
  let options = [
    Option<"nq", "nq", "int64_t", /*default=*/"0", "number of queries">,
    Option<"nk", "nk", "int64_t", /*default=*/"0", "number of keys">,
    Option<"tileM", "tile-m", "int64_t", /*default=*/"64", "queries of a tile">,
    Option<"tileN", "tile-n", "int64_t", /*default=*/"64", "keys of a tile">,
    Option<"offset", "offset", "int64_t", /*default=*/"0",
           "position of query 0; by default what the op says (rule A3)">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

#endif // FLASHATTN_ANALYSIS_PASSES_TD
