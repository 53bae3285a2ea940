#!/bin/sh
# Measure a 3-D step on a CPU and compare it with the usual implementation. This takes about a minute on two cores.
# Options are passed on to graftseg bench.
set -eu
exec graftseg bench demo-3d/bcp --device cpu --set 'batches.patch=[64,64,48]' --steps 15 --rounds 3 "$@"
