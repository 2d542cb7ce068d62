#!/bin/bash -eu
# Builds each fuzz target of the repository in $SRC/frisbee into $OUT, with its seeds and its options.

# The file rust-toolchain.toml asks for stable Rust.
export RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN:-nightly}
cd "$SRC/frisbee/fuzz"
cargo fuzz build
for target in $(cargo fuzz list); do
	cp "target/x86_64-unknown-linux-gnu/release/$target" "$OUT/"
	if [ -d "seeds/$target" ]; then
		zip -jqr "$OUT/${target}_seed_corpus.zip" "seeds/$target"
	fi
	cp libfuzzer.options "$OUT/$target.options"
done
