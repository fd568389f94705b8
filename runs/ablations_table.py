"""The table of runs/ablations.sh: reads its variants from stdin and the metrics of the runs, prints Markdown.

A gap is the mean over seeds of the difference in final validation loss to the run that a variant is compared with, of
the same seed, and its standard error. A run that diverged counts as the loss of its start."""

import json
import math
import sys
from pathlib import Path

directory, seeds = Path(sys.argv[1]), sys.argv[2].split()


def records(name, seed):
    file = directory / f"{name}-{seed}" / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def final_loss(name, seed):
    """Validation loss at the end; of a run that ended early or in NaN, that of knowing nothing."""
    found = records(name, seed)
    done = (directory / f"{name}-{seed}" / "model" / "config.json").exists()
    losses = [r["loss"] for r in found if r["kind"] == "val"]
    if done and losses and losses[-1] is not None and math.isfinite(losses[-1]):
        return losses[-1], True
    start = [r["loss"] for r in found if r["kind"] == "train" and r["loss"] is not None]
    return (start[0] if start else math.nan), False


def mean(values):
    return sum(values) / len(values)


def standard_error(values):
    centre = mean(values)
    return math.sqrt(sum((v - centre) ** 2 for v in values) / (len(values) - 1) / len(values)) if len(values) > 1 else 0


print("| variant | settings | validation loss | compared with | gap | in the literature | |")
print("|---|---|---|---|---|---|---|")
for line in sys.stdin:
    name, other, settings, sign, source = line.rstrip("\n").split("|")
    ends = [final_loss(name, seed) for seed in seeds]
    losses = [loss for loss, _ in ends]
    diverged = sum(not good for _, good in ends)
    shown = f"{mean(losses):.3f} ± {standard_error(losses):.3f}"
    if diverged:
        shown += f" ({diverged} of {len(ends)} diverged)"
    if not other:
        print(f"| {name} | {settings or 'the baseline'} | {shown} | | | | |")
        continue
    gaps = [loss - final_loss(other, seed)[0] for loss, seed in zip(losses, seeds)]
    gap, error = mean(gaps), standard_error(gaps)
    found = "worse" if gap > 0 else "better"
    verdict = "as there" if found == sign else "otherwise"
    if abs(gap) < 2 * error:
        verdict += ", within noise"
    print(f"| {name} | {settings} | {shown} | {other} | {gap:+.3f} ± {error:.3f} | {sign}: {source} | {verdict} |")

profile = directory / "profile.json"
if profile.exists():
    report = json.loads(profile.read_text().splitlines()[-1])
    steps = len(report["steps"])
    total = sum(report["steps"])
    norms = sum(k["seconds"] for k in report["kernels"] if "norm" in k["name"])
    tokens = report["tokens_per_second"] * report["step_seconds"]
    config = json.loads((directory / f"base-{seeds[0]}" / "config.json").read_text())["model"]
    # Forward: square, add, times rstd, times weight; backward: about nine more.
    norm_flops = 13 * config["dim"] * (2 * config["layers"] + 1) * tokens
    flops = report["flops_per_second"] * report["step_seconds"]
    print(f"\nNorms: {100 * norm_flops / (flops + norm_flops):.2f} % of the FLOPs of a step and "
          f"{100 * norms / total:.1f} % of its time ({report['threads']} threads, {report['device']}).")
