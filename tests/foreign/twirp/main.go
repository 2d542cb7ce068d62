// twirp-client makes calls with the client that protoc-gen-twirp wrote for Twirp's own example, and checks what comes of them.
//
// Usage: twirp-client URL. Prints a line for each check that fails, then "N passed, M failed".
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/twitchtv/twirp"
	"github.com/twitchtv/twirp/example"
)

var passed, failed int

func check(what string, ok bool, seen any) {
	if ok {
		passed++
		return
	}
	failed++
	fmt.Printf("FAILED %s: %v\n", what, seen)
}

// Hats of 12 inches are made. Sizes of 0 and less are errors, whose code is chosen by the size.
func main() {
	url := os.Args[1]
	for _, format := range []string{"protobuf", "json"} {
		client := example.NewHaberdasherProtobufClient(url, http.DefaultClient)
		if format == "json" {
			client = example.NewHaberdasherJSONClient(url, http.DefaultClient)
		}
		calls(format, client)
	}
	elsewhere := example.NewHaberdasherProtobufClient(url, http.DefaultClient, twirp.WithClientPathPrefix("/elsewhere"))
	_, err := elsewhere.MakeHat(context.Background(), &example.Size{Inches: 12})
	check("another prefix", err != nil, err)
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func calls(format string, client example.Haberdasher) {
	header := http.Header{"X-Shop": []string{"7"}, "X-Mark-Bin": []string{"AQI="}}
	ctx, err := twirp.WithHTTPRequestHeaders(context.Background(), header)
	check(format+": headers", err == nil, err)
	hat, err := client.MakeHat(ctx, &example.Size{Inches: 12})
	check(format+": a hat", err == nil && hat.Size == 12 && hat.Color == "blue" && hat.Name == "shop 7, mark [1, 2]", fmt.Sprint(hat, err))

	large, err := client.MakeHat(ctx, &example.Size{Inches: 1_000_000})
	check(format+": a large hat", err == nil && len(large.GetName()) == 1_000_000, err)

	for size, code := range map[int32]twirp.ErrorCode{
		-1: twirp.Canceled, -2: twirp.Unknown, -3: twirp.InvalidArgument, -4: twirp.DeadlineExceeded, -5: twirp.NotFound,
		-6: twirp.AlreadyExists, -7: twirp.PermissionDenied, -8: twirp.ResourceExhausted, -9: twirp.FailedPrecondition,
		-10: twirp.Aborted, -11: twirp.OutOfRange, -12: twirp.Unimplemented, -13: twirp.Internal, -14: twirp.Unavailable,
		-15: twirp.DataLoss, -16: twirp.Unauthenticated,
	} {
		_, err := client.MakeHat(ctx, &example.Size{Inches: size})
		var failure twirp.Error
		is := errors.As(err, &failure) && failure.Code() == code && strings.HasSuffix(failure.Msg(), "\"no\" hat \u00fc")
		check(fmt.Sprintf("%s: %s", format, code), is && failure.Meta("argument") == "inches", err)
	}
}
