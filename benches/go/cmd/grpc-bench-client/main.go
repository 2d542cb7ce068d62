// grpc-bench-client keeps calls in flight on many connections, verifies every answer, and prints one line of JSON.
package main

import (
	"bytes"
	"context"
	"errors"
	"io"

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
	switch {
	case args.Streaming && args.Field == "bytes":
		load.Exit(errors.New("streams carry strings"))
	case args.Streaming:
		prepare = stream
	case args.Field == "bytes":
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

// stream reads a stream of its own; each message counts as a call.
func stream(c *grpc.ClientConn, content string) load.Call {
	var responses grpc.ServerStreamingClient[wrapperspb.StringValue]
	return func(ctx context.Context) error {
		for {
			if responses != nil {
				response, err := responses.Recv()
				if err == nil && response.Value != content {
					return load.ErrWrongAnswer
				}
				if err != io.EOF {
					return err
				}
			}
			var err error
			if responses, err = benchmark.Repeat(ctx, c, content, messages); err != nil {
				return err
			}
		}
	}
}

// So many that opening a stream does not count.
const messages = 100_000
