#!/bin/sh
# Trains, tests and records every recipe of the LA and ACDC tables, one after the other; what is finished is skipped.
#   benchmarks/reproduce.sh stores/la stores/acdc
# SEEDS, RUNS, RESULTS and RECIPES can be set; VARIANT=exact keeps the published arithmetic. Two calls with different
# RECIPES can share a GPU.
set -eu
la=$1 acdc=$2
seeds=${SEEDS:-2} runs=${RUNS:-runs} results=${RESULTS:-results} variant=${VARIANT:-fast}
recipes=${RECIPES:-la-8/bcp la-4/bcp acdc-3/bcp acdc-7/bcp la-8/supervised la-4/supervised acdc-3/supervised acdc-7/supervised}

for recipe in $recipes; do
    case $recipe in la-*) store=$la ;; *) store=$acdc ;; esac
    set -- --set selection.oracle=true --set selection.every=1000 --set loop.log_every=50
    case $recipe in la-*) set -- "$@" --set "selection.stride=[56,56,40]" ;; esac
    case $variant in fast) set -- "$@" --set fast=true; named="--variant fast" ;; *) named= ;; esac
    graftseg train "$recipe" --data "$store" --out "$runs/$variant/$recipe" --seeds "$seeds" "$@"
    for run in "$runs/$variant/$recipe"/seed-*; do
        # shellcheck disable=SC2086 # no variant is no word
        graftseg record "$run" --results "$results" $named
    done
done
graftseg table all --results "$results" --markdown docs/reference/tables.md
