#!/usr/bin/env bash
# What each choice of an architecture is worth: trains small models that differ in one thing, three seeds each, and prints
# the gap in validation loss beside its sign in the literature, with plots of the curves.
#   runs/ablations.sh [--data DIR] [--out DIR] [--size cpu|gpu] [--steps N] [--seeds "1 2 3"] [--jobs N] [--threads N]
#   --data     made by `loam data tokenize`; default: what ./quickstart.sh made
#   --size     cpu: 0.8 million parameters without the embedding, about two minutes a run on two cores; gpu: 124 million
#   --jobs     runs at a time, of --threads threads each
# Runs that are done are not repeated. The table is OUT/ablations.md, the plots are OUT/*.png.
set -euo pipefail
cd "$(dirname "$0")/.."

data=.quickstart/kjv/data out=.ablations size=cpu steps="" seeds="1 2 3" jobs=1 threads=2
loam=${LOAM:-build/release/bin/loam}
while (($# > 0)); do
  case "$1" in
    --help | -h) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --data | --out | --size | --steps | --seeds | --jobs | --threads)
      [[ $# -ge 2 ]] || { echo "ablations.sh: $1 needs a value" >&2; exit 2; }
      declare "${1#--}=$2"
      shift 2
      ;;
    *) echo "ablations.sh: unknown option '$1' (--help lists them)" >&2; exit 2 ;;
  esac
done
[[ -x "$loam" ]] || { echo "ablations.sh: $loam is not there: build it (./quickstart.sh), or say where in LOAM" >&2; exit 1; }
[[ -d "$data/train" ]] || { echo "ablations.sh: $data: no data; ./quickstart.sh makes some, --data names others" >&2; exit 1; }

# --- the baseline: pre-norm with RMSNorm, rotary positions, SwiGLU, AdamW with a cosine
case "$size" in
  cpu)
    base=(model.layers=4 model.dim=128 model.heads=4 model.ffn_dim=352 model.context_length=256 batch=16
          optimizer.lr=4e-3 optimizer.warmup_steps=40 optimizer.weight_decay=0.1 val_every=50 val_rows=64)
    steps=${steps:-300} ungated_dim=528 high_lr=0.1 device=cpu
    ;;
  gpu)
    base=(model.layers=12 model.dim=768 model.heads=12 model.ffn_dim=2048 model.context_length=1024 batch=256 micro_batch=32
          dtype=bf16 optimizer.lr=1e-3 optimizer.warmup_steps=400 optimizer.weight_decay=0.1 val_every=250 val_rows=512)
    steps=${steps:-4000} ungated_dim=3072 high_lr=0.02 device=cuda
    ;;
  *) echo "ablations.sh: --size is cpu or gpu" >&2; exit 2 ;;
esac

# name | what it is compared with | settings | sign of the gap in the literature | source
variants=(
  "base||||"
  "no-norm|base|model.norm_place=none model.final_norm=false|worse|Zhang and Sennrich 2019"
  "post-norm|base|model.norm_place=post model.final_norm=false|worse|Xiong et al. 2020"
  "no-positions|base|model.positions=none|worse|Haviv et al. 2022 (slightly)"
  "silu|base|model.gated=false model.ffn_dim=$ungated_dim|worse|Shazeer 2020 (equal parameters)"
  "dropout|base|model.dropout=0.1|worse|Liu et al. 2025 (one epoch)"
  "no-decay|decay|optimizer.weight_decay=0|worse|D'Angelo et al. 2023 (at the end of a cosine)"
  "decay||optimizer.weight_decay=1||"
  "high-lr||optimizer.lr=$high_lr||"
  "high-lr-z-loss|high-lr|optimizer.lr=$high_lr z_loss=1e-3|better|Chowdhery et al. 2022; Wortsman et al. 2023"
  "high-lr-qk-norm|high-lr|optimizer.lr=$high_lr model.qk_norm=head|better|Dehghani et al. 2023; Wortsman et al. 2023"
)

mkdir -p "$out"

# one NAME SETTINGS SEED: a run; one whose loss is not finite is a result, too.
one() {
  local name=$1 settings=$2 seed=$3 setting arguments=()
  local -A chosen=()  # a variant's settings in place of the baseline's
  for setting in "${base[@]}" $settings; do chosen[${setting%%=*}]=$setting; done
  for setting in "${chosen[@]}"; do arguments+=(--set "$setting"); done
  "$loam" train --device "$device" --data "$data" --out "$out/$name-$seed" --seed "$seed" --threads "$threads" --steps "$steps" --quiet \
    "${arguments[@]}" --set sample_every=0 --set save_every=0 --set log_every=10 \
    >"$out/$name-$seed.log" 2>&1 || echo "$name, seed $seed: $(tail -n 1 "$out/$name-$seed.log")"
}

for variant in "${variants[@]}"; do
  IFS='|' read -r name _ settings _ _ <<<"$variant"
  for seed in $seeds; do
    [[ -f "$out/$name-$seed/model/config.json" ]] && continue
    while (($(jobs -rp | wc -l) >= jobs)); do wait -n || true; done
    echo "$name, seed $seed"
    one "$name" "$settings" "$seed" &
  done
done
wait

# --- the curves, and what the norms cost
first=${seeds%% *}
program=$(realpath "$loam")
plot() { (cd "$out" && "$program" plot "$@" --quiet --force) || true; }  # from inside, for short names in the legend
plot {base,no-norm,post-norm}-"$first" --y loss --smooth 5 --out norms.png
plot {base,no-positions,silu,dropout}-"$first" --y val --out architecture.png
plot {high-lr,high-lr-z-loss,high-lr-qk-norm,base}-"$first" --y loss --smooth 5 --out high-lr.png
plot {decay,no-decay}-"$first" --y val --out weight-decay.png
profile_settings=()
for setting in "${base[@]}"; do profile_settings+=(--set "$setting"); done
"$loam" bench train --steps 5 --profile --json --threads "$threads" --device "$device" "${profile_settings[@]}" \
  >"$out/profile.json" 2>/dev/null || rm -f "$out/profile.json"

printf '%s\n' "${variants[@]}" | python3 runs/ablations_table.py "$out" "$seeds" | tee "$out/ablations.md"
