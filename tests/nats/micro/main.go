// Command micro-peer is a peer of frisbee-rpc-nats with the package micro of nats.go.
//
//	micro-peer ask URL NAME      prints what the service NAME tells of itself, one JSON text per line
//	micro-peer call URL          calls services of interop.proto, with JSON and Protobuf
//	micro-peer serve URL NAME    serves a part of interop.proto until its standard input ends
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"google.golang.org/protobuf/encoding/protowire"
)

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: micro-peer ask|call|serve URL [NAME]")
	}
	nc, err := nats.Connect(os.Args[2])
	check(err)
	defer nc.Close()
	switch os.Args[1] {
	case "ask":
		ask(nc, os.Args[3])
	case "call":
		call(nc)
	case "serve":
		serve(nc, os.Args[3])
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// ask decodes the answers with the types of the package micro.
func ask(nc *nats.Conn, name string) {
	var ping micro.Ping
	question(nc, micro.PingVerb, "", "", &ping)
	if ping.Type != micro.PingResponseType {
		log.Fatalf("the type of the ping is %q", ping.Type)
	}
	var info micro.Info
	question(nc, micro.InfoVerb, name, "", &info)
	if info.Type != micro.InfoResponseType {
		log.Fatalf("the type of the info is %q", info.Type)
	}
	var stats micro.Stats
	question(nc, micro.StatsVerb, name, info.ID, &stats)
	if stats.Type != micro.StatsResponseType {
		log.Fatalf("the type of the stats is %q", stats.Type)
	}
	for _, found := range []any{ping, info, stats} {
		text, err := json.Marshal(found)
		check(err)
		fmt.Println(string(text))
	}
}

func question(nc *nats.Conn, verb micro.Verb, name, id string, into any) {
	subject, err := micro.ControlSubject(verb, name, id)
	check(err)
	answer, err := nc.Request(subject, nil, 10*time.Second)
	check(err)
	check(json.Unmarshal(answer.Data, into))
}

func call(nc *nats.Conn) {
	const echo, fail = "test.interop.Interop.Echo", "test.interop.Interop.Fail"
	answer := request(nc, echo, "", []byte(`{"title":"from Go","i64":"7"}`))
	var rich struct{ Title, I64 string }
	check(json.Unmarshal(answer.Data, &rich))
	fmt.Println("json", rich.Title, rich.I64, answer.Header.Get("Content-Type"), answer.Header.Get("x-mirrored"))

	// Rich has its title under 7.
	message := protowire.AppendString(protowire.AppendTag(nil, 7, protowire.BytesType), "from Go")
	answer = request(nc, echo, "application/protobuf", message)
	_, _, tagged := protowire.ConsumeTag(answer.Data)
	title, _ := protowire.ConsumeString(answer.Data[tagged:])
	fmt.Println("protobuf", title, answer.Header.Get("Content-Type"))

	answer = request(nc, fail, "application/json", []byte(`{"text":"as asked"}`))
	fmt.Println("error", answer.Header.Get(micro.ErrorCodeHeader), answer.Header.Get(micro.ErrorHeader))
	answer = request(nc, echo, "application/json", []byte(`{"title":`))
	fmt.Println("invalid", answer.Header.Get(micro.ErrorCodeHeader))
	answer = request(nc, "test.interop.Interop.Numbers", "", []byte(`{}`))
	fmt.Println("stream", answer.Header.Get(micro.ErrorCodeHeader))
	answer = request(nc, "test.interop.Interop.Nothing", "", nil)
	fmt.Println("unknown", answer.Header.Get(micro.ErrorCodeHeader))
}

func request(nc *nats.Conn, subject, contentType string, data []byte) *nats.Msg {
	message := nats.NewMsg(subject)
	message.Data = data
	if contentType != "" {
		message.Header.Set("Content-Type", contentType)
	}
	message.Header.Set("x-from", "go")
	answer, err := nc.RequestMsg(message, 10*time.Second)
	check(err)
	return answer
}

func serve(nc *nats.Conn, name string) {
	service, err := micro.AddService(nc, micro.Config{Name: name, Version: "1.2.3"})
	check(err)
	group := service.AddGroup(name + ".interop.Interop")
	check(group.AddEndpoint("Echo", micro.HandlerFunc(func(request micro.Request) {
		headers := micro.Headers{"X-Content": request.Headers()["Content-Type"]}
		check(request.Respond(request.Data(), micro.WithHeaders(headers)))
	})))
	check(group.AddEndpoint("Fail", micro.HandlerFunc(func(request micro.Request) {
		check(request.Error("404", "not in Go", nil))
	})))
	check(nc.Flush())
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
