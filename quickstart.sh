#!/usr/bin/env bash
# From nothing to a model that writes like its corpus: installs, builds, takes a corpus, trains a tokenizer and a model, shows what it writes.
#   ./quickstart.sh                              the King James Bible, from the Debian package bible-kjv
#   ./quickstart.sh --corpus PATH                your own text: a text or JSONL file ({"text": ...} a line; .gz and .zst too), or a directory
#   ./quickstart.sh --corpus tinystories         22 MB of TinyStories, downloaded; tinystories-full: 2.2 GB
#   ./quickstart.sh ... -- --set steps=1200      what follows -- goes to `loam train`
# A second run does only what is missing. Everything made lies below .quickstart/ and build/quickstart/.
set -euo pipefail
cd "$(dirname "$0")"

corpus=kjv
train_arguments=()
while (($# > 0)); do
  case "$1" in
    --corpus)
      [[ $# -ge 2 ]] || { echo "quickstart.sh: --corpus needs a value" >&2; exit 2; }
      corpus=$2
      shift 2
      ;;
    --corpus=*) corpus=${1#*=}; shift ;;
    --help | -h) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --) shift; train_arguments=("$@"); break ;;
    *) echo "quickstart.sh: unknown option '$1' (there are --corpus and --help)" >&2; exit 2 ;;
  esac
done

die() { echo "quickstart: $*" >&2; exit 1; }

times=()
# phase NAME FUNCTION: runs it and notes how long it took.
phase() {
  local begin=$SECONDS
  printf '\n== %s\n' "$1"
  "$2"
  times+=("$(printf '%-12s %4d s' "$1" $((SECONDS - begin)))")
}

# --- the corpus: sets $input (what loam reads), $work (where this corpus's results go), $prompts and, for plain text of many documents, $separator
separator=()
prompts=("")
case "$corpus" in
  kjv) work=.quickstart/kjv input=$work/corpus.jsonl prompts=("And it came to pass" "The LORD is" "Blessed are") ;;
  tinystories) work=.quickstart/tinystories file=TinyStoriesV2-GPT4-valid.txt ;;
  tinystories-full) work=.quickstart/tinystories-full file=TinyStoriesV2-GPT4-train.txt ;;
  *)
    [[ -e "$corpus" ]] || die "--corpus $corpus: no such file (the names are tinystories and tinystories-full)"
    input=$(realpath "$corpus")
    # Another file, or the same one changed, is another corpus.
    mark=$(find "$input" -type f -printf '%p %s %T@\n' | LC_ALL=C sort | cksum | cut -d ' ' -f 1)
    work=.quickstart/$(basename "$input" | tr -c 'A-Za-z0-9._\n-' '_')-$mark
    ;;
esac
if [[ "$corpus" == tinystories* && -n "${file:-}" ]]; then
  input=$work/$file
  separator=(--doc-separator '<|endoftext|>')
  prompts=("Once upon a time" "Lily and Tom" "The little dog")
fi

# One document a chapter: {"id": "Ge1", "text": "In the beginning ...\nAnd the earth ..."}, a verse a line, without the verse marks.
bible_as_jsonl() {
  bible -f "Gen1:1-Rev22:21" | awk '
    function close_chapter() { if (chapter != "") printf "{\"id\": \"%s\", \"text\": \"%s\"}\n", chapter, text }
    {
      mark = $1
      sub(/^[^ ]+ +/, "")
      gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); gsub(/\t/, "\\t")
      split(mark, parts, ":")
      if (parts[1] != chapter) { close_chapter(); chapter = parts[1]; text = $0 } else text = text "\\n" $0
    }
    END { close_chapter() }'
}

# download URL FILE: size and SHA-256 are those that the server states for the file, and are checked.
download() {
  local url=$1 file=$2 headers size sum
  command -v curl >/dev/null || die "downloading needs curl: apt-get install curl"
  headers=$(curl -fsSIL --max-time 30 "$url") ||
    die "cannot reach $url. Without a network use the default corpus, or your own: ./quickstart.sh --corpus PATH"
  size=$(tr -d '\r' <<<"$headers" | awk 'tolower($1) == "x-linked-size:" { print $2 }' | tail -1)
  sum=$(tr -d '\r"' <<<"$headers" | awk 'tolower($1) == "x-linked-etag:" { print $2 }' | tail -1)
  [[ "$size" =~ ^[0-9]+$ && "$sum" =~ ^[0-9a-f]{64}$ ]] || die "$url: the server states no size and SHA-256; nothing was downloaded"
  echo "$url"
  echo "$size bytes, SHA-256 $sum"
  # A part that is whole already only waits for its check.
  [[ $(stat -c %s "$file.part" 2>/dev/null || echo 0) -ge $size ]] || curl -fL -C - --progress-bar -o "$file.part" "$url" || die "the download broke off; run again to go on with it"
  [[ $(stat -c %s "$file.part") -eq $size ]] || { rm -f "$file.part"; die "$file: not $size bytes; removed"; }
  echo "$sum  $file.part" | sha256sum -c --quiet || { rm -f "$file.part"; die "$file: wrong SHA-256; removed"; }
  mv "$file.part" "$file"
}

take_corpus() {
  mkdir -p "$work"
  if [[ ! -e "$input" ]]; then
    if [[ "$corpus" == kjv ]]; then
      bible_as_jsonl >"$input.part"
      [[ $(wc -l <"$input.part") -eq 1189 ]] || die "the command bible did not print the 1,189 chapters"
      mv "$input.part" "$input"
    else
      download "https://huggingface.co/datasets/roneneldan/TinyStories/resolve/main/$file" "$input"
    fi
  fi
  du -shL "$input"
}

loam=build/quickstart/bin/loam
build() {
  [[ -f build/quickstart/build.ninja ]] ||
    cmake --preset release -B build/quickstart -DLOAM_TESTS=OFF >/dev/null || die "cmake failed"
  cmake --build build/quickstart --target loam
}

train_tokenizer() {
  [[ -d $work/tokenizer ]] || $loam tokenizer train --input "$input" "${separator[@]}" --vocab-size 8192 --out "$work/tokenizer"
  echo "$work/tokenizer"
}

tokenize() {
  [[ -d $work/data ]] ||
    $loam data tokenize --input "$input" "${separator[@]}" --tokenizer "$work/tokenizer" --val-fraction 0.02 --out "$work/data"
  echo "$work/data"
}

train() {
  # A finished run is left as it is, a stopped one goes on.
  local summary
  summary=$($loam train --json --config recipes/quickstart.json --set "data.path=$work/data" --out "$work/run" --resume auto "${train_arguments[@]}")
  [[ $summary == *'"interrupted":false'* ]] || die "training has stopped before its end; ./quickstart.sh with the same options goes on with it"
  echo "$work/run"
}

show() {
  local prompt seed=1
  for prompt in "${prompts[@]}"; do
    printf '%s\n' "--- prompt: '${prompt}'"
    $loam generate --model "$work/run/model" --prompt "$prompt" --max-tokens 100 --temperature 0.8 --top-p 0.95 --seed $((seed++))
    echo
  done
}

phase setup ./setup.sh
phase build build
phase corpus take_corpus
phase tokenizer train_tokenizer
phase tokenize tokenize
phase train train
phase samples show

printf '\n== times\n'
printf '%s\n' "${times[@]}" "$(printf '%-12s %4d s' all $SECONDS)"
cat <<END

The loss picture is $work/run/loss.png, the numbers behind it $work/run/metrics.jsonl.
What to type next:
  $loam generate --model $work/run/model --prompt "${prompts[0]}" --max-tokens 200
  $loam score --model $work/run/model FILE            how well the model predicts a text
  $loam inspect $work/run/model                       what is in it
  ./quickstart.sh --corpus PATH                        the same with your own text
  ./quickstart.sh --help                               what else there is
$work/run/model opens in Hugging Face transformers as it is. To train anew, remove $work/run.
END
