// rpc-bench-client keeps calls in flight on many connections, verifies every answer, and prints one line of JSON.
package main

import (
	"bytes"
	"context"
	"errors"

	"interop/internal/benchmark"
	"interop/internal/rpc"
	"interop/load"
)

func main() {
	args := load.ParseArgs()
	if args.Streaming {
		load.Exit(errors.New("this client has no streams"))
	}
	prepare := text
	if args.Field == "bytes" {
		prepare = binary
	}
	load.Exit(load.Run(args, func(addr string) (load.Prepare, error) {
		c, err := rpc.Dial(addr, nil, benchmark.Methods)
		return func(content string) load.Call { return prepare(c, content) }, err
	}))
}

func text(c *rpc.Client, content string) load.Call {
	request := &benchmark.Text{Message: content}
	return func(ctx context.Context) error {
		reply, err := benchmark.Benchmark.Call(ctx, c, request)
		if err == nil && reply.Message != content {
			return load.ErrWrongAnswer
		}
		return err
	}
}

func binary(c *rpc.Client, content string) load.Call {
	request := &benchmark.Bytes{Message: []byte(content)}
	return func(ctx context.Context) error {
		reply, err := benchmark.BytesBenchmark.Call(ctx, c, request)
		if err == nil && !bytes.Equal(reply.Message, request.Message) {
			return load.ErrWrongAnswer
		}
		return err
	}
}
