// geth-client calls functions and services with the client of JSON-RPC that is in go-ethereum, and checks what comes of it.
//
// Usage: geth-client PORT. Prints a line for each check that fails, then "N passed, M failed".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
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

func main() {
	address := "127.0.0.1:" + os.Args[1]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, url := range []string{"tcp://" + address, "http://" + address + "/rpc", "ws://" + address + "/rpc"} {
		client, close, err := dial(ctx, url)
		if err != nil {
			check(url, false, err)
			continue
		}
		calls(ctx, url, client)
		if !strings.HasPrefix(url, "http") {
			subscriptions(ctx, url, client)
		}
		close()
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

// It dials unix sockets, on which it sends values one after the other. Here it does so over TCP.
func dial(ctx context.Context, url string) (client *rpc.Client, close func(), err error) {
	address, isTCP := strings.CutPrefix(url, "tcp://")
	if !isTCP {
		if client, err = rpc.DialContext(ctx, url); err == nil {
			close = client.Close
		}
		return client, close, err
	}
	socket, err := net.Dial("tcp", address)
	if err != nil {
		return nil, nil, err
	}
	client, err = rpc.DialIO(ctx, socket, socket)
	return client, func() { socket.Close() }, err
}

func calls(ctx context.Context, url string, client *rpc.Client) {
	var sum int
	err := client.CallContext(ctx, &sum, "sum", 1, 2)
	check(url+" sum", err == nil && sum == 3, fmt.Sprint(sum, err))

	long := strings.Repeat("ü☺\"\\\n", 20_000)
	var text string
	err = client.CallContext(ctx, &text, "echo", long)
	check(url+" echo", err == nil && text == long, err)

	var missing rpc.DataError
	err = client.CallContext(ctx, nil, "missing")
	ok := errors.As(err, &missing) && missing.Error() == "nobody is here"
	check(url+" missing", ok && missing.ErrorData().(map[string]any)["code"] == "not_found", err)
	var bad rpc.Error
	err = client.CallContext(ctx, nil, "sum", 1, "two")
	check(url+" a wrong argument", errors.As(err, &bad) && bad.ErrorCode() == -32602 && strings.Contains(err.Error(), "`b`"), err)
	err = client.CallContext(ctx, nil, "nothing")
	check(url+" an unknown method", errors.As(err, &bad) && bad.ErrorCode() == -32601, err)

	var hello struct{ Message string }
	err = client.CallContext(ctx, &hello, "helloworld.Greeter/SayHello", "go-ethereum")
	check(url+" a service", err == nil && hello.Message == "Hello go-ethereum!", fmt.Sprint(hello, err))

	batch := make([]rpc.BatchElem, 20)
	for number := range batch {
		batch[number] = rpc.BatchElem{Method: "sum", Args: []any{number, number}, Result: new(int)}
	}
	batch[7].Method = "nothing"
	err = client.BatchCallContext(ctx, batch)
	check(url+" batch", err == nil, err)
	for number, element := range batch {
		if number == 7 {
			check(url+" batch, an unknown method", errors.As(element.Error, &bad) && bad.ErrorCode() == -32601, element.Error)
			continue
		}
		ok := element.Error == nil && *element.Result.(*int) == 2*number
		check(url+" batch, each", ok, fmt.Sprint(*element.Result.(*int), element.Error))
	}

	note := "from go-ethereum by " + url
	err = client.Notify(ctx, "note", note)
	if strings.HasPrefix(url, "http") && errors.Is(err, io.EOF) {
		// It misses an answer where there is none.
		err = nil
	}
	var notes []string
	for err == nil && !strings.Contains(strings.Join(notes, "\n"), note) {
		err = client.CallContext(ctx, &notes, "notes")
	}
	check(url+" notification", err == nil, err)
}

type parameters struct {
	Size       int `json:"size"`
	IntervalUs int `json:"intervalUs,omitempty"`
}

// A stream of answers, and one that never ends but by unsubscribing.
func subscriptions(ctx context.Context, url string, client *rpc.Client) {
	type payloads struct{ Payload struct{ Body []byte } }
	answers := make(chan payloads)
	each := []parameters{{Size: 1}, {Size: 0}, {Size: 70_000}}
	stream, err := client.Subscribe(ctx, "payloads", answers, "UNCOMPRESSABLE", each)
	if err != nil {
		check(url+" subscribe", false, err)
		return
	}
	for _, parameter := range each {
		select {
		case answer := <-answers:
			check(url+" answers of a subscription", len(answer.Payload.Body) == parameter.Size, len(answer.Payload.Body))
		case err = <-stream.Err():
			check(url+" subscription", false, err)
			return
		case <-ctx.Done():
			check(url+" subscription", false, ctx.Err())
			return
		}
	}
	stream.Unsubscribe()

	hour := []parameters{{Size: 1, IntervalUs: 2_000_000_000}}
	endless, err := client.Subscribe(ctx, "payloads", answers, 0, hour)
	if err != nil {
		check(url+" subscribe", false, err)
		return
	}
	endless.Unsubscribe()
	_, isOpen := <-endless.Err()
	check(url+" unsubscribe", !isOpen, "it has an error")
	var sum int
	err = client.CallContext(ctx, &sum, "sum", 1, 2)
	check(url+" calls after unsubscribing", err == nil && sum == 3, err)
}
