#!/usr/bin/env bash
# Installs the system packages that loam is built from. Says what it does; installs only what is missing.
#   ./setup.sh          what building and running needs
#   ./setup.sh --dev    also what only the tests, the fuzz targets and clang-tidy need
# Needs apt (made for Debian 12) and, if something is missing, root or sudo.
set -euo pipefail

build_packages=(
  build-essential cmake ninja-build ccache pkg-config git ca-certificates python3
  libfmt-dev libspdlog-dev nlohmann-json3-dev libsimdjson-dev libcli11-dev
  zlib1g-dev libzstd-dev libxxhash-dev libpcre2-dev libprotozero-dev libutf8proc-dev
  libdnnl-dev libhwy-dev
  unicode-data
  gnuplot-nox
  bible-kjv bible-kjv-text
)
dev_packages=(
  libgtest-dev libgmock-dev gzip zstd
  clang-format-14 clang-16 clang-tidy-16 libclang-rt-16-dev libomp-16-dev
)

usage() { sed -n '2,5s/^# \{0,1\}//p' "$0"; }

packages=("${build_packages[@]}")
for argument in "$@"; do
  case "$argument" in
    --dev) packages+=("${dev_packages[@]}") ;;
    --help | -h) usage; exit 0 ;;
    *) echo "setup.sh: unknown option '$argument' (there are --dev and --help)" >&2; exit 2 ;;
  esac
done

command -v apt-get >/dev/null || {
  echo "setup.sh: no apt-get here. Install the equivalents of these Debian 12 packages by hand:" >&2
  printf '  %s\n' "${packages[@]}" >&2
  exit 1
}

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ "$state" == installed ]] || missing+=("$package")
done

if ((${#missing[@]} == 0)); then
  echo "setup: all ${#packages[@]} packages are installed"
else
  as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || {
      echo "setup.sh: not root, and there is no sudo. As root, run:" >&2
      echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
      exit 1
    }
    as_root=(sudo)
  fi
  echo "setup: installing ${#missing[@]} of ${#packages[@]} packages through apt: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  # DEBIAN_FRONTEND passes through sudo only as an argument of env.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$log" 2>&1 || {
    tail -20 "$log" >&2
    echo "setup.sh: apt-get could not install the packages (its last lines are above)" >&2
    exit 1
  }
  echo "setup: done"
fi

# The CUDA toolkit is not a Debian package of the needed age: it is used where it exists, never installed.
nvcc=$(command -v nvcc || { [[ -x /usr/local/cuda/bin/nvcc ]] && echo /usr/local/cuda/bin/nvcc; } || true)
version=""
[[ -n "$nvcc" ]] && version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
if [[ -z "$version" ]]; then
  echo "setup: no CUDA toolkit found. The CUDA build needs one of version 12.8 or later and is skipped."
elif [[ $(printf '%s\n' 12.8 "$version" | sort -V | head -1) != 12.8 ]]; then
  echo "setup: the CUDA toolkit here is $version. The CUDA build needs 12.8 or later and is skipped."
else
  echo "setup: CUDA toolkit $version found"
fi
