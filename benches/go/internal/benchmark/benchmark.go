// Package benchmark has the unary methods of peers/proto/benchmark.proto.
//
// Its messages have one field with the number 1, as the wrappers of protobuf have, so these stand for them, and the
// encoding is that of generated code.
package benchmark

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Server is what a program serves.
type Server interface {
	Text(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
	Bytes(context.Context, *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error)
}

// Register adds both services.
func Register(r grpc.ServiceRegistrar, s Server) {
	r.RegisterService(service("BenchmarkService", s.Text), s)
	r.RegisterService(service("BytesService", s.Bytes), s)
}

// Text calls BenchmarkService.
func Text(ctx context.Context, c grpc.ClientConnInterface, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	out := new(wrapperspb.StringValue)
	return out, c.Invoke(ctx, "/BenchmarkService/Benchmark", in, out)
}

// Bytes calls BytesService.
func Bytes(ctx context.Context, c grpc.ClientConnInterface, in *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error) {
	out := new(wrapperspb.BytesValue)
	return out, c.Invoke(ctx, "/BytesService/Benchmark", in, out)
}

func service[M any](name string, serve func(context.Context, *M) (*M, error)) *grpc.ServiceDesc {
	handle := func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(M)
		if err := decode(in); err != nil {
			return nil, err
		}
		return serve(ctx, in)
	}
	return &grpc.ServiceDesc{
		ServiceName: name,
		HandlerType: (*Server)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Benchmark", Handler: handle}},
	}
}

// What server and client agree on; peers/src/grpc.rs says why.
const (
	MessageLenMax       = 8 << 20
	StreamWindowLen     = 2 << 20
	ConnectionWindowLen = 16 << 20
)
