#!/bin/sh
# Installs servers in Python that the report compares, by name from PyPI, and puts programs that start them into bin/.
set -eu
cd "$(dirname "$0")"
if ! cmp -s requirements.txt venv/.installed; then
	rm -rf venv
	python3 -m venv venv
	venv/bin/pip install --quiet --disable-pip-version-check --no-deps -r requirements.txt
	cp requirements.txt venv/.installed
fi
mkdir -p bin
for server in ucall fastapi grpc; do
	printf '#!/bin/sh\nexec "%s/venv/bin/python" "%s/%s_server.py" "$@"\n' "$PWD" "$PWD" "$server" >"bin/${server}_server"
	chmod +x "bin/${server}_server"
done
