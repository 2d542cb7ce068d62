// twirp-bench-server answers every call of the benchmark with its message.
package main

import (
	"context"
	"net/http"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"grpcbench/internal/twirpbench"
	"interop/load"
)

func main() {
	service := load.ParseService()
	l, err := service.Listen()
	load.Exit(err)
	services := http.NewServeMux()
	for _, s := range []twirpbench.TwirpServer{
		twirpbench.NewBenchmarkServiceServer(text{service}),
		twirpbench.NewBytesServiceServer(binary{service}),
	} {
		services.Handle(s.PathPrefix(), s)
	}
	load.Exit(http.Serve(l, services))
}

type text struct{ load.Service }

func (t text) Benchmark(_ context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	t.Work()
	return &wrapperspb.StringValue{Value: m.Value}, nil
}

type binary struct{ load.Service }

func (b binary) Benchmark(_ context.Context, m *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error) {
	b.Work()
	return &wrapperspb.BytesValue{Value: m.Value}, nil
}
