// Package load makes load as the load clients in Rust do: the same options, and the same report.
package load

import (
	"flag"
	"fmt"
	"net"
	"os"
	"time"
)

// Args say what load a client makes.
type Args struct {
	Addr       string
	Size       int    // content bytes of each request
	Field      string // what carries the content: string or bytes
	Streaming  bool   // whether the messages of streams are counted instead of calls
	Clients    int    // connections
	Concurrent int    // requests in flight on each connection
	Seconds    time.Duration
	Warmup     time.Duration
}

// ParseArgs reads the command line of a client.
func ParseArgs() Args {
	var a Args
	flag.IntVar(&a.Size, "size", 32, "content bytes of each request")
	flag.StringVar(&a.Field, "field", "string", "what carries the content: string or bytes")
	flag.BoolVar(&a.Streaming, "streaming", false, "count the messages of streams instead of calls")
	flag.IntVar(&a.Clients, "clients", 32, "connections")
	flag.IntVar(&a.Concurrent, "concurrent", 1, "requests in flight on each connection")
	seconds := flag.Float64("seconds", 3, "how long calls are counted")
	warmup := flag.Float64("warmup", 1, "how long calls are made before that")
	a.Addr = address()
	a.Seconds, a.Warmup = duration(*seconds), duration(*warmup)
	if a.Field != "string" && a.Field != "bytes" {
		Exit(fmt.Errorf("no field %q: string or bytes", a.Field))
	}
	return a
}

// A Service is what a server is told.
type Service struct {
	Addr  string
	sleep time.Duration
}

// ParseService reads the command line of a server, once the flags of its own are defined.
func ParseService() Service {
	sleep := flag.Int("sleep-us", 0, "how many microseconds each handler sleeps")
	addr := address()
	return Service{addr, time.Duration(*sleep) * time.Microsecond}
}

// Work is what a handler does before it answers.
func (s Service) Work() {
	if s.sleep > 0 {
		time.Sleep(s.sleep)
	}
}

// Listen opens the address and says so on standard output.
func (s Service) Listen() (net.Listener, error) {
	l, err := net.Listen("tcp", s.Addr)
	if err == nil {
		fmt.Printf("listening on %s\n", l.Addr())
	}
	return l, err
}

// Exit ends the program with its error.
func Exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func address() string {
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintf(os.Stderr, "usage: %s [flags] ADDRESS\n", os.Args[0])
		flag.PrintDefaults()
		os.Exit(2)
	}
	return flag.Arg(0)
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
