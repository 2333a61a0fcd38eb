#!/usr/bin/env bash
# Builds llama.cpp's llama-bench for this machine into build/peers. Its source comes inside the PyPI source
# package llama-cpp-python; the GGUF writer is the PyPI package gguf.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${LLAMA_CPP_PYTHON:-0.3.36}
peers=$PWD/build/peers
mkdir -p "$peers"
cd "$peers"
if [[ ! -x llama-bench ]]; then
  [[ -d llama_cpp_python-$version ]] || {
    python3 -m pip download --quiet --no-deps --no-build-isolation --no-binary :all: "llama-cpp-python==$version" ||
      [[ -f llama_cpp_python-$version.tar.gz ]]
    tar xzf "llama_cpp_python-$version.tar.gz"
  }
  cmake -S "llama_cpp_python-$version/vendor/llama.cpp" -B llama.cpp -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF > cmake.log
  cmake --build llama.cpp --target llama-bench
  ln -sf "$(find "$peers/llama.cpp" -name llama-bench -type f | head -n1)" llama-bench
fi
[[ -d python/gguf ]] || python3 -m pip install --quiet --target python gguf
echo "$peers/llama-bench: llama-cpp-python $version"
