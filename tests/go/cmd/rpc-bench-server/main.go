// rpc-bench-server answers every call of the benchmark with its message.
package main

import (
	"context"
	"flag"

	"interop/internal/benchmark"
	"interop/internal/rpc"
	"interop/load"
)

func main() {
	concurrency := flag.Uint64("concurrency", 0, "0: a goroutine per request, 1: one per connection, n: at most n")
	load.Exit(serve(load.ParseService(), *concurrency))
}

func serve(service load.Service, concurrency uint64) error {
	s, err := rpc.NewServer(benchmark.Benchmark.Handle(echo[*benchmark.Text](service)),
		benchmark.BytesBenchmark.Handle(echo[*benchmark.Bytes](service)))
	if err != nil {
		return err
	}
	s.SetConcurrency(concurrency)
	l, err := service.Listen()
	if err != nil {
		return err
	}
	return s.StartWithListener(l)
}

func echo[M rpc.Message](service load.Service) func(context.Context, M) (M, error) {
	return func(_ context.Context, m M) (M, error) {
		service.Work()
		return m, nil
	}
}
