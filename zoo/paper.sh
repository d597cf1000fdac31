#!/usr/bin/env bash
# Train at the paper's own length, or go on where the runs are: [SEED=N] zoo/paper.sh DATA [RUN...]
# Each run takes one core. Names: SHOTS-METHOD, cheetah-METHOD, or navigation-METHOD.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
ln -sfn "$(cd "$here" && realpath "$1")" zoo/data # runs remember where their data are
shift
[ $# -gt 0 ] || set -- 1shot-pmeta 1shot-maml++ 5shot-pmeta 5shot-maml++ cheetah-pmeta cheetah-maml++
seed=${SEED:-0}
for run in "$@"; do
    task=${run%%-*} method=${run#*-}
    budget=1MB freeze=0.2
    case $task in
    cheetah) settings=(cheetah-velocity-paper) budget=190kB ;;
    navigation) settings=(navigation-paper) budget=170kB freeze=0.1 ;;
    *)
        tasks=100000
        [ "$task" = 1shot ] || tasks=30000
        settings=("miniimagenet-4conv-5way-$task" --data zoo/data --tasks "$tasks" --epoch-tasks 1000 --val-tasks 150)
        ;;
    esac
    [[ $method != pmeta* ]] || settings+=(--memory-budget "$budget" --budget-accounting exact --freeze-at "$freeze")
    [ "$seed" = 0 ] || run+=-seed$seed
    OMP_NUM_THREADS=1 python -m pmeta train "${settings[@]}" --method "$method" --seed "$seed" --workers 1 --out "zoo/runs/paper-$run"
done
