// A client and a server of grpc-go with a service config, health checks and load reports, around the method
// calls.Test/Say. A message with one text field is a StringValue.
//
//	grpc-go serve [-utilization U] [-rate R] [-name NAME]
//	grpc-go call [-calls N] [-pause DURATION] [-text TEXT] [-metadata NAME=VALUE,...] CONFIG ADDRESS...
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	_ "google.golang.org/grpc/balancer/leastrequest"
	_ "google.golang.org/grpc/balancer/weightedroundrobin"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("expected serve or call")
	}
	switch os.Args[1] {
	case "serve":
		serve(os.Args[2:])
	case "call":
		call(os.Args[2:])
	default:
		log.Fatalf("%s: expected serve or call", os.Args[1])
	}
}

// peer answers each call with its name, the number of earlier attempts, and the text.
type peer struct {
	name   string
	health *health.Server
}

func (p *peer) say(ctx context.Context, text string) (string, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	attempts := 0
	if values := md.Get("grpc-previous-rpc-attempts"); len(values) > 0 {
		attempts, _ = strconv.Atoi(values[0])
	}
	words := strings.Fields(text)
	switch {
	case len(words) >= 2 && words[0] == "fail":
		// fail COUNT [PUSHBACK]
		count, err := strconv.Atoi(words[1])
		if err != nil {
			return "", status.Error(codes.InvalidArgument, "expected a number of failures")
		}
		if attempts < count {
			if len(words) > 2 {
				grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", words[2]))
			}
			return "", status.Errorf(codes.Unavailable, "attempt %d fails", attempts)
		}
	case text == "suspend":
		p.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	case text == "resume":
		p.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	}
	return fmt.Sprintf("%s %d %s", p.name, attempts, text), nil
}

func (p *peer) handle(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	request := new(wrapperspb.StringValue)
	if err := decode(request); err != nil {
		return nil, err
	}
	handler := func(ctx context.Context, request any) (any, error) {
		// Without a recorder, grpc-go sends no report.
		orca.CallMetricsRecorderFromContext(ctx)
		text, err := p.say(ctx, request.(*wrapperspb.StringValue).Value)
		if err != nil {
			return nil, err
		}
		return wrapperspb.String(text), nil
	}
	if intercept == nil {
		return handler(ctx, request)
	}
	// It adds the load report to the trailers.
	return intercept(ctx, request, &grpc.UnaryServerInfo{Server: p, FullMethod: "/calls.Test/Say"}, handler)
}

func serve(args []string) {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	utilization := flags.Float64("utilization", 0, "the utilization in load reports, none without it")
	rate := flags.Float64("rate", 100, "the calls per second in load reports")
	name := flags.String("name", "go", "the name in answers")
	_ = flags.Parse(args)
	var options []grpc.ServerOption
	if *utilization > 0 {
		recorder := orca.NewServerMetricsRecorder()
		recorder.SetApplicationUtilization(*utilization)
		recorder.SetQPS(*rate)
		options = append(options, orca.CallMetricsServerOption(recorder))
	}
	server := grpc.NewServer(options...)
	p := &peer{name: *name, health: health.NewServer()}
	healthpb.RegisterHealthServer(server, p.health)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "calls.Test",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Say", Handler: p.handle}},
	}, p)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening %s\n", listener.Addr())
	log.Fatal(server.Serve(listener))
}

func call(args []string) {
	flags := flag.NewFlagSet("call", flag.ExitOnError)
	calls := flags.Int("calls", 1, "the number of calls")
	pause := flags.Duration("pause", 0, "the pause between two calls")
	text := flags.String("text", "hi", "the request")
	pairs := flags.String("metadata", "", "NAME=VALUE, sent with each call, several with commas between them")
	_ = flags.Parse(args)
	if flags.NArg() < 2 {
		log.Fatal("expected a service config and addresses")
	}
	builder := manual.NewBuilderWithScheme("fleet")
	var addresses []resolver.Address
	for _, address := range flags.Args()[1:] {
		addresses = append(addresses, resolver.Address{Addr: address})
	}
	builder.InitialState(resolver.State{Addresses: addresses})
	channel, err := grpc.NewClient("fleet:///test", grpc.WithResolvers(builder),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(flags.Arg(0)))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, pair := range strings.Split(*pairs, ",") {
		if name, value, found := strings.Cut(pair, "="); found {
			ctx = metadata.AppendToOutgoingContext(ctx, name, value)
		}
	}
	for range *calls {
		begun, answer := time.Now(), new(wrapperspb.StringValue)
		err := channel.Invoke(ctx, "/calls.Test/Say", wrapperspb.String(*text), answer, grpc.WaitForReady(true))
		took := time.Since(begun).Milliseconds()
		if err != nil {
			fmt.Printf("%d ms: error %s\n", took, status.Convert(err).Message())
		} else {
			fmt.Printf("%d ms: %s\n", took, answer.Value)
		}
		time.Sleep(*pause)
	}
}
