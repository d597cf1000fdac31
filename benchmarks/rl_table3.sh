#!/bin/sh
# Table 3: 500 meta epochs of navigation, or of the Half-Cheetah, for every method, then 400 unseen tasks of each.
#   sh benchmarks/rl_table3.sh [FOLDER] [navigation|cheetah-velocity] [methods]
# p-Meta has the budgets that lead to the layers of the paper's figures (docs/paper/choices.md, 7.9).
set -e
out=${1:-runs/table3}
env=${2:-navigation}
for method in ${3:-maml anil boil maml++ pmeta-lr pmeta}; do
    case $method-$env in
    pmeta*-navigation) budget="--memory-budget 170kB --budget-accounting exact --freeze-at 0.1" ;;
    pmeta*) budget="--memory-budget 190kB --budget-accounting exact --freeze-at 0.2" ;;
    *) budget="" ;;
    esac
    # shellcheck disable=SC2086
    pmeta train "$env-paper" --method "$method" $budget --out "$out/$env-$method"
    pmeta evaluate "$out/$env-$method" --tasks 400 --json >"$out/$env-$method.json"
done
