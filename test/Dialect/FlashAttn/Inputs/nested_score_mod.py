"""nested_score_mod.py N prints attention whose score modification holds attention, N deep."""
import sys

depth = int(sys.argv[1])
tensor = "tensor<1x2x8x16xf32>"
print(f"func.func @f(%q: {tensor}) {{")
for i in range(depth):
    print(f"flashattn.attention ins(%q, %q, %q : {tensor}, {tensor}, {tensor}) score_mod {{")
    print(f"^bb0(%s{i}: f32, %b{i}: index, %h{i}: index, %p{i}: index, %k{i}: index):")
for i in reversed(range(depth)):
    print(f"flashattn.yield %s{i} : f32 }} outs(%q : {tensor}) -> {tensor}")
print("return }")
