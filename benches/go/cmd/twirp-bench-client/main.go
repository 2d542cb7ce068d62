// twirp-bench-client keeps calls in flight for many clients, verifies every answer, and prints one line of JSON.
//
// Each client has a connection for each call in flight, because Twirp speaks HTTP/1.1 unless there is TLS.
package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"grpcbench/internal/twirpbench"
	"interop/load"
)

func main() {
	args := load.ParseArgs()
	if args.Streaming {
		load.Exit(errors.New("Twirp has no streams"))
	}
	prepare := text
	if args.Field == "bytes" {
		prepare = binary
	}
	load.Exit(load.Run(args, func(addr string) (load.Prepare, error) {
		c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: args.Concurrent, DisableCompression: true}}
		// The first call opens a connection.
		err := text(c, addr, "")(context.Background())
		return func(content string) load.Call { return prepare(c, addr, content) }, err
	}))
}

func text(c *http.Client, addr, content string) load.Call {
	service := twirpbench.NewBenchmarkServiceProtobufClient("http://"+addr, c)
	request := &wrapperspb.StringValue{Value: content}
	return func(ctx context.Context) error {
		reply, err := service.Benchmark(ctx, request)
		if err == nil && reply.Value != content {
			return load.ErrWrongAnswer
		}
		return err
	}
}

func binary(c *http.Client, addr, content string) load.Call {
	service := twirpbench.NewBytesServiceProtobufClient("http://"+addr, c)
	request := &wrapperspb.BytesValue{Value: []byte(content)}
	return func(ctx context.Context) error {
		reply, err := service.Benchmark(ctx, request)
		if err == nil && !bytes.Equal(reply.Value, request.Value) {
			return load.ErrWrongAnswer
		}
		return err
	}
}
