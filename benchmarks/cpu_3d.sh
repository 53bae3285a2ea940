#!/bin/sh
# A 3-D step on a CPU, beside the usual way: about a minute on two idle cores. Further options go to graftseg bench.
set -eu
exec graftseg bench demo-3d/bcp --device cpu --set 'batches.patch=[64,64,48]' --steps 15 --rounds 3 "$@"
