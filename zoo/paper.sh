#!/usr/bin/env bash
# Train at the paper's own length, or go on where the runs are: zoo/paper.sh DATA [RUN...]
# Each run takes one core. Names: SHOTS-METHOD, or cheetah-METHOD.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
ln -sfn "$(cd "$here" && realpath "$1")" zoo/data # runs remember where their data are
shift
[ $# -gt 0 ] || set -- 1shot-pmeta 1shot-maml++ 5shot-pmeta 5shot-maml++ cheetah-pmeta cheetah-maml++
for run in "$@"; do
    task=${run%%-*} method=${run#*-}
    budget=()
    if [ "$task" = cheetah ]; then
        [[ $method != pmeta* ]] || budget=(--memory-budget 190kB --budget-accounting exact --freeze-at 0.2)
        OMP_NUM_THREADS=1 python -m pmeta train cheetah-velocity-paper --method "$method" \
            --seed 0 --workers 1 "${budget[@]}" --out "zoo/runs/paper-$run"
        continue
    fi
    tasks=100000
    [ "$task" = 1shot ] || tasks=30000
    [[ $method != pmeta* ]] || budget=(--memory-budget 1MB --budget-accounting exact --freeze-at 0.2)
    OMP_NUM_THREADS=1 python -m pmeta train "miniimagenet-4conv-5way-$task" --data zoo/data --method "$method" \
        --tasks "$tasks" --epoch-tasks 1000 --val-tasks 150 --seed 0 --workers 1 "${budget[@]}" --out "zoo/runs/paper-$run"
done
