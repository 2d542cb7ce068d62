// grpc-bench-client keeps calls in flight on many connections, verifies every answer, and prints one line of JSON.
package main

import (
	"bytes"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"grpcbench/internal/benchmark"
	"interop/load"
)

func main() {
	args := load.ParseArgs()
	prepare := text
	if args.Field == "bytes" {
		prepare = binary
	}
	load.Exit(load.Run(args, func(addr string) (load.Prepare, error) {
		c, err := connect(addr)
		return func(content string) load.Call { return prepare(c, content) }, err
	}))
}

func connect(addr string) (*grpc.ClientConn, error) {
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(benchmark.MessageLenMax)),
		grpc.WithInitialWindowSize(benchmark.StreamWindowLen),
		grpc.WithInitialConnWindowSize(benchmark.ConnectionWindowLen))
	if err != nil {
		return nil, err
	}
	c.Connect()
	for state := c.GetState(); state != connectivity.Ready; state = c.GetState() {
		c.WaitForStateChange(context.Background(), state)
	}
	return c, nil
}

func text(c *grpc.ClientConn, content string) load.Call {
	request := &wrapperspb.StringValue{Value: content}
	return func(ctx context.Context) error {
		reply, err := benchmark.Text(ctx, c, request)
		if err == nil && reply.Value != content {
			return load.ErrWrongAnswer
		}
		return err
	}
}

func binary(c *grpc.ClientConn, content string) load.Call {
	request := &wrapperspb.BytesValue{Value: []byte(content)}
	return func(ctx context.Context) error {
		reply, err := benchmark.Bytes(ctx, c, request)
		if err == nil && !bytes.Equal(reply.Value, request.Value) {
			return load.ErrWrongAnswer
		}
		return err
	}
}
