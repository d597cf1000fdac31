#!/bin/sh
# Table 3: 500 meta epochs of navigation, or of the Half-Cheetah, for every method, then 400 unseen tasks of each.
#   sh benchmarks/rl_table3.sh [FOLDER] [navigation|cheetah-velocity] [methods]
set -e
out=${1:-runs/table3}
env=${2:-navigation}
for method in ${3:-maml anil boil maml++ pmeta-lr pmeta}; do
    pmeta train "$env-paper" --method "$method" --out "$out/$env-$method"
    pmeta evaluate "$out/$env-$method" --tasks 400 --json >"$out/$env-$method.json"
done
