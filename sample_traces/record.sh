#!/usr/bin/env bash
# Records every sample trace anew, each by the command that README.md lists. Needs about three minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
small="--layers 2 --hidden 64 --sequence 32 --steps 4 --active 2"
dense="--layers 3 --hidden 64 --sequence 64 --steps 4 --active 2"
record() {
  rm -rf "sample_traces/$1"
  tracekit run "${@:2}" --out "sample_traces/$1"
}
record tp tp --ranks 2 $small
record tp-sp tp-sp --ranks 2 $small
record fsdp fsdp --ranks 2 $small
record pp-1f1b pp --ranks 4 --schedule 1f1b --emulate-compute 60ms --layers 8 --steps 3 --active 1
record pp-interleaved-zb pp --ranks 4 --schedule interleaved-zb --emulate-compute 60ms --layers 8 --steps 3 --active 1
record recompute-none dense --recompute none $dense
record recompute-full dense --recompute full $dense
record recompute-selective dense --recompute selective:core_attention $dense
record 3d 3d --ranks 8 --sequence-parallel --emulate-compute 40ms --layers 2 --microbatches 4 --steps 3 --active 1
