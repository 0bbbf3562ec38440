// The tuner of flash-run: a line for every schedule, the fastest kept in a file that later runs read.
//
// RUN: rm -rf %t && mkdir %t
// RUN: flash-run %s --device=cpu --tune --tuned-schedules=%t/cache/schedules.json --bench=0.001 | FileCheck %s
// CHECK: tune: tile_m = {{.*}} ms, quartiles {{[0-9.]+}} to {{[0-9.]+}}
// CHECK: (the compiler's own choice)
// CHECK: tune: best for cpu/16/16/f32/triangular: tile_m = {{.*}}, written to
// RUN: FileCheck %s --check-prefix=FILE < %t/cache/schedules.json
// FILE: "cpu/16/16/f32/triangular": {
// FILE: "schedule": "tile_m =

// Only schedules with fields that are pinned are tried, beside the compiler's own choice.
// RUN: flash-run %s --device=cpu --tune --schedule='tile_n = 16' --tuned-schedules=%t/pinned.json --bench=0.001 | grep '^tune: tile_m' | grep -v "compiler's own choice" > %t/pinned.txt
// RUN: FileCheck %s --check-prefix=FIELDS < %t/pinned.txt
// RUN: not grep -v 'tile_n = 16,' %t/pinned.txt
// FIELDS: tune: tile_m
// RUN: not flash-run %s --device=cpu --tune --schedule='tile_n = 17' --tuned-schedules=%t/pinned.json 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: --tune: expected --schedule to match a schedule that the tuner tries but got 'tile_n = 17'
// RUN: not flash-run %s --device=cpu --tune --schedule='depth = 1' --tuned-schedules=%t/pinned.json 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: error: expected schedule fields tile_m, {{.*}} but got depth
// RUN: not flash-run %s --device=cpu --tune --schedule='mapping = 3' --tuned-schedules=%t/pinned.json 2>&1 | FileCheck %s --check-prefix=ROLES
// ROLES: error: expected schedule field mapping to be cpu, mma_sync<...> or hopper<...> but got '3'
// The compiler's own choice may be what is pinned.
// DEFINE: %{own} = %python -c "import subprocess, sys; sys.exit(subprocess.call(sys.argv[2:] + ['--schedule=' + open(sys.argv[1]).read().strip()]))" %t/own.txt flash-run %s --device=cpu --tune
// RUN: flash-run %s --device=cpu --emit=schedule --tuned-schedules=none | sed 's/.*attention: //' > %t/own.txt
// RUN: %{own} --tuned-schedules=%t/own.json --bench=0.001 | FileCheck %s --check-prefix=ONLY-OWN --implicit-check-not='ms, quartiles'
// ONLY-OWN: tune: tile_m = {{.*}} ms, quartiles {{.*}} (the compiler's own choice)
// ONLY-OWN: tune: best for cpu/16/16/f32/triangular: tile_m = {{.*}}, written to

// What an earlier run has kept is tried beside what is pinned, and what becomes of it is said.
// RUN: echo '{"version": 4, "schedules": {"cpu/16/16/f32/triangular": {"schedule": "tile_m = 64, tile_n = 1024, stages = 1, dot_type = f32, mapping = cpu"}}}' > %t/slow.json
// RUN: %{own} --tuned-schedules=%t/slow.json --bench=0.01 | FileCheck %s --check-prefix=REPLACED
// REPLACED: tune: tile_m = {{.*}} (the compiler's own choice)
// REPLACED: tune: tile_m = 64, tile_n = 1024, {{.*}} (kept so far)
// REPLACED: tune: the new schedule replaces tile_m = 64, tile_n = 1024, stages
// RUN: %{own} --tuned-schedules=%t/own.json --bench=0.001 | FileCheck %s --check-prefix=SAME --implicit-check-not=replaces
// SAME: tune: tile_m = {{.*}} (the compiler's own choice) (kept so far)
// RUN: not flash-run %s --device=cpu --tune --dump-dir=%t/many --tuned-schedules=%t/own.json 2>&1 | FileCheck %s --check-prefix=MANY
// MANY: error: --dump-dir: expected one compilation but got --tune, which compiles many schedules

// What is found is used, unless told not to; pins come first.
// RUN: echo '{"version": 4, "schedules": {"cpu/16/16/f32/triangular": {"schedule": "tile_m = 4, tile_n = 8, stages = 1, dot_type = f32, mapping = cpu"}}}' > %t/given.json
// RUN: flash-run %s --device=cpu --verify --tuned-schedules=%t/given.json --dump-dir=%t/dump | FileCheck %s --check-prefix=PASS
// RUN: cat %t/dump/*-flashattn-tile.mlir | FileCheck %s --check-prefix=TUNED
// RUN: flash-run %s --device=cpu --tuned-schedules=none --dump-dir=%t/none
// RUN: cat %t/none/*-flashattn-tile.mlir | FileCheck %s --check-prefix=OWN
// PASS: schedule: tuned for 1 attention op, in {{.*}}given.json
// PASS: verify {{.*}}PASS
// TUNED: schedule(<tile_m = 4, tile_n = 8,
// OWN: schedule(<tile_m = {{[0-9]+}}, tile_n = 64,

// A file that is none of these keeps nobody from computing, but is not written over.
// RUN: echo '{"version": 1}' > %t/bad.json
// RUN: flash-run %s --device=cpu --verify --tuned-schedules=%t/bad.json 2>&1 | FileCheck %s --check-prefix=BAD
// BAD: warning: expected tuned schedules of version 4 in {{.*}}bad.json but got other content; delete the file and tune again
// BAD: verify o: {{.*}}PASS
// RUN: not flash-run %s --device=cpu --tune --tuned-schedules=%t/bad.json --bench=0.001 2>&1 | FileCheck %s --check-prefix=KEPT
// KEPT: error: expected tuned schedules of version 4
// Before the trials: a file that cannot be written.
// RUN: not flash-run %s --device=cpu --tune --tuned-schedules=/proc/flashattn/a.json --bench=0.001 2>&1 | FileCheck %s --check-prefix=NO-FOLDER --implicit-check-not="tune: "
// NO-FOLDER: error: cannot make the folder of '/proc/flashattn/a.json': {{.+}}
// RUN: not flash-run %s --device=cpu --tune --tuned-schedules=%t --bench=0.001 2>&1 | FileCheck %s --check-prefix=FOLDER
// FOLDER: error: {{cannot read '.*'|expected a file for tuned schedules but got the folder '.*'}}
// A plain name is a file of the folder at hand.
// RUN: cd %t && flash-run %s --device=cpu --tune --tuned-schedules=mine.json --bench=0.001 | FileCheck %s --check-prefix=PLAIN
// PLAIN: written to mine.json
// RUN: FileCheck %s --check-prefix=FILE < %t/mine.json

// The user's cache folder: an absolute $XDG_CACHE_HOME; empty or relative is as if it were not set.
// RUN: env FLASHATTN_TUNED=1 HOME=%t/home XDG_CACHE_HOME=%t/xdg flash-run %s --device=cpu --tune --bench=0.001 | FileCheck %s --check-prefix=XDG
// XDG: written to {{.*}}/xdg/flashattn/schedules.json
// RUN: cd %t && env FLASHATTN_TUNED=1 HOME=%t/home XDG_CACHE_HOME= flash-run %s --device=cpu --tune --bench=0.001 | FileCheck %s --check-prefix=HOME
// RUN: cd %t && env FLASHATTN_TUNED=1 HOME=%t/home XDG_CACHE_HOME=here flash-run %s --device=cpu --tune --bench=0.001 | FileCheck %s --check-prefix=HOME
// HOME: written to {{.*}}/home/.cache/flashattn/schedules.json
// RUN: not ls %t/here %t/flashattn

// RUN: not flash-run %s --device=cpu --tune 2>&1 | FileCheck %s --check-prefix=NOWHERE
// NOWHERE: error: --tune: expected --tuned-schedules=FILE or a cache folder, to store the schedule, but got neither
// RUN: not flash-run %s --device=cpu --tuned-schedules=%t/none.json 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: error: --tuned-schedules: cannot read '{{.*}}none.json': No such file or directory; --tune writes it

// A pin comes before what was tuned, and leaves the rest to the compiler.
// RUN: flash-run %s --device=cpu --verify --schedule='tile_m = 8' --tuned-schedules=%t/given.json --dump-dir=%t/pinned | FileCheck %s --check-prefix=PINNED --implicit-check-not=tuned
// RUN: cat %t/pinned/*-flashattn-tile.mlir | FileCheck %s --check-prefix=PIN
// PINNED: verify {{.*}}PASS
// PIN: schedule(<tile_m = 8, tile_n = {{[0-9]+}}, stages = 1, dot_type = f32, mapping = cpu>)

func.func @attention(%q: tensor<1x2x64x16xf32>, %k: tensor<1x2x64x16xf32>, %v: tensor<1x2x64x16xf32>)
    -> tensor<1x2x64x16xf32> {
  %o_init = tensor.empty() : tensor<1x2x64x16xf32>
  %o = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : tensor<1x2x64x16xf32>, tensor<1x2x64x16xf32>, tensor<1x2x64x16xf32>)
      outs(%o_init : tensor<1x2x64x16xf32>) -> tensor<1x2x64x16xf32>
  return %o : tensor<1x2x64x16xf32>
}
