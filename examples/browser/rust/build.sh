#!/bin/sh
# Compiles the page in Rust into examples/browser/build/rust: build.sh [PACKAGE FOLDER], by default that page. Prints the
# reason and leaves it out where a tool is missing.
set -eu
package=${1:-browser_page}
folder=${2:-examples/browser/build/rust}
cd "$(dirname "$0")/../../.."
target=wasm32-unknown-unknown
tools="$PWD/target/tools"
PATH="$tools/bin:$PATH"
# The program and the library of wasm-bindgen must have the same version.
version=$(sed -n '/^name = "wasm-bindgen"$/{n;s/^version = "\(.*\)"$/\1/p}' Cargo.lock)
if ! rustup target add "$target" >/dev/null 2>&1; then
	echo "skipped: WebAssembly needs 'rustup target add $target'"
	exit 0
fi
if [ "$(wasm-bindgen --version 2>/dev/null)" != "wasm-bindgen $version" ] &&
	! cargo install wasm-bindgen-cli --version "$version" --root "$tools" --quiet; then
	echo "skipped: WebAssembly needs wasm-bindgen-cli $version"
	exit 0
fi
cargo build --quiet --package "$package" --target "$target"
wasm-bindgen --target web --no-typescript --out-dir "$folder" "${CARGO_TARGET_DIR:-target}/$target/debug/$package.wasm"
