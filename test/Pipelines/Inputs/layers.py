"""Prints a module of as many equal attentions as the argument says, each of which reads what the last one wrote."""

import sys

TYPE = "memref<1x8x?x128xf16>"

print(f"func.func @layers(%x: {TYPE}, %k: {TYPE}, %v: {TYPE}, %y: {TYPE}) {{")
for layer in range(int(sys.argv[1])):
    source, target = ("%x", "%y") if layer % 2 == 0 else ("%y", "%x")
    print("  flashattn.attention mask(#flashattn.causal)")
    print(f"      ins({source}, %k, %v : {TYPE}, {TYPE}, {TYPE}) outs({target} : {TYPE})")
print("  return\n}")
