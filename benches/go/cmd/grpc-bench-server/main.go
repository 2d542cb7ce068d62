// grpc-bench-server answers every call of the benchmark with its message.
package main

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/typepb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"grpcbench/internal/benchmark"
	"interop/load"
)

func main() {
	service := load.ParseService()
	l, err := service.Listen()
	load.Exit(err)
	s := grpc.NewServer(grpc.MaxRecvMsgSize(benchmark.MessageLenMax),
		grpc.InitialWindowSize(benchmark.StreamWindowLen),
		grpc.InitialConnWindowSize(benchmark.ConnectionWindowLen))
	benchmark.Register(s, echo{service})
	load.Exit(s.Serve(l))
}

type echo struct{ load.Service }

func (e echo) Text(_ context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	e.Work()
	return &wrapperspb.StringValue{Value: m.Value}, nil
}

func (e echo) Bytes(_ context.Context, m *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error) {
	e.Work()
	return &wrapperspb.BytesValue{Value: m.Value}, nil
}

func (e echo) Repeat(m *typepb.EnumValue, s grpc.ServerStreamingServer[wrapperspb.StringValue]) error {
	for range m.Number {
		if err := s.Send(&wrapperspb.StringValue{Value: m.Name}); err != nil {
			return err
		}
	}
	return nil
}
