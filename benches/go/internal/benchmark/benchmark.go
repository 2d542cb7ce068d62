// Package benchmark has the services of examples/proto/benchmark.proto whose messages are strings, or bytes in calls.
//
// Messages that come with protobuf stand for those of the file, with the same fields, and the encoding is that of
// generated code: the wrappers for one field with the number 1, and an EnumValue for the RepeatRequest.
package benchmark

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/typepb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Server is what a program serves.
type Server interface {
	Text(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
	Bytes(context.Context, *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error)
	Repeat(*typepb.EnumValue, grpc.ServerStreamingServer[wrapperspb.StringValue]) error
}

// Register adds the services.
func Register(r grpc.ServiceRegistrar, s Server) {
	r.RegisterService(service("BenchmarkService", s.Text), s)
	r.RegisterService(service("BytesService", s.Bytes), s)
	r.RegisterService(streamService(s.Repeat), s)
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

// Repeat calls StreamService, which sends the message so many times.
func Repeat(ctx context.Context, c grpc.ClientConnInterface, message string, count int32) (
	grpc.ServerStreamingClient[wrapperspb.StringValue], error,
) {
	s, err := c.NewStream(ctx, &repeat, "/StreamService/Repeat")
	if err != nil {
		return nil, err
	}
	if err := s.SendMsg(&typepb.EnumValue{Name: message, Number: count}); err != nil {
		return nil, err
	}
	return &grpc.GenericClientStream[typepb.EnumValue, wrapperspb.StringValue]{ClientStream: s}, s.CloseSend()
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

func streamService(serve func(*typepb.EnumValue, grpc.ServerStreamingServer[wrapperspb.StringValue]) error) *grpc.ServiceDesc {
	handle := func(_ any, s grpc.ServerStream) error {
		in := new(typepb.EnumValue)
		if err := s.RecvMsg(in); err != nil {
			return err
		}
		return serve(in, &grpc.GenericServerStream[typepb.EnumValue, wrapperspb.StringValue]{ServerStream: s})
	}
	desc := repeat
	desc.Handler = handle
	return &grpc.ServiceDesc{
		ServiceName: "StreamService",
		HandlerType: (*Server)(nil),
		Streams:     []grpc.StreamDesc{desc},
	}
}

var repeat = grpc.StreamDesc{StreamName: "Repeat", ServerStreams: true}

// Settings of server and client alike; peers/src/grpc.rs says why.
const (
	MessageLenMax       = 8 << 20
	StreamWindowLen     = 2 << 20
	ConnectionWindowLen = 16 << 20
)
