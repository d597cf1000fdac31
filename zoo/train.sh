#!/usr/bin/env bash
# Train the models of the zoo and their baselines on MiniImageNet, or go on where they are: zoo/train.sh DATA [SHOTS METHOD]
# Same seed and tasks for all methods. Each run takes one core; start the script twice with other methods to use two.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
ln -sfn "$(cd "$here" && realpath "$1")" zoo/data # runs remember where their data are
queue=("1 pmeta" "1 pmeta-lr" "1 maml++" "5 pmeta" "5 pmeta-lr" "5 maml++" "1 maml" "1 anil" "1 boil")
[ $# -lt 3 ] || queue=("$2 $3")
for each in "${queue[@]}"; do
    read -r shots method <<< "$each"
    length=(--tasks 20000 --epoch-tasks 2000)
    [ "$shots" = 1 ] || length=(--tasks 8000 --epoch-tasks 800)
    budget=()
    [[ $method != pmeta* ]] || budget=(--memory-budget 1MB --budget-accounting exact --freeze-at 0.2)
    OMP_NUM_THREADS=1 python -m pmeta train "miniimagenet-4conv-5way-${shots}shot" --data zoo/data --method "$method" "${length[@]}" \
        --meta-batch 2 --n-query 5 --val-tasks 150 --seed 0 --workers 1 "${budget[@]}" --out "zoo/runs/${shots}shot-$method"
done
