// rpc-closer makes streaming calls on many connections and closes each connection as
// soon as it has what it waits for. It counts the closes that hang.
//
// frisbee-go waits for its read loop while it closes a connection, and holds the lock
// of the streams. If the read loop meets a packet of a stream then, it waits for this
// lock, and the close never ends.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"interop/internal/check"
	"interop/internal/interop"
	"interop/internal/rpc"
)

var (
	ca          = flag.String("tls-ca", "", "connect with TLS and trust this certificate file")
	connections = flag.Int("connections", 800, "how many connections are closed after calls of one kind")
	atOnce      = flag.Int("at-once", 8, "how many of them there are at once")
	quick       = flag.Bool("quick", false, "leave out the calls that hang with any server")
	limit       = flag.Duration("limit", 10*time.Second, "a close that takes longer hangs")
)

// toEnd reads to the end marker.
func toEnd[Out, In rpc.Message](st *rpc.Stream[Out, In], err error) error {
	for err == nil {
		_, err = st.Recv()
	}
	if err == io.EOF {
		return nil
	}
	return err
}

func numbers(c *rpc.Client) error {
	return toEnd(interop.Numbers.Open(c, &interop.Series{Count: 3}))
}

// failing gets an error packet in front of the end marker.
func failing(c *rpc.Client) error {
	st, err := interop.Numbers.Open(c, &interop.Series{FailWith: "no"})
	if err != nil {
		return err
	}
	if err := toEnd(st, nil); err != rpc.Failure("no") {
		return fmt.Errorf("got %v instead of the error", err)
	}
	return toEnd(st, nil)
}

func sent(c *rpc.Client) (*rpc.Stream[*interop.Number, *interop.Summary], error) {
	st, err := interop.Total.Open(c, &interop.Number{Value: 1})
	if err == nil {
		err = st.End()
	}
	return st, err
}

func total(c *rpc.Client) error { return toEnd(sent(c)) }

// result is what CloseAndRecv of generated code does: it leaves the end marker unread.
func result(c *rpc.Client) error {
	st, err := sent(c)
	if err == nil {
		_, err = st.Recv()
	}
	return err
}

func talk(c *rpc.Client) error {
	st, err := interop.Talk.Open(c, &interop.Text{Text: "a"})
	if err == nil {
		_, err = st.Recv()
	}
	if err == nil {
		err = st.End()
	}
	return toEnd(st, err)
}

// stopped is ended by the server; this side's end marker goes out while the connection
// closes.
func stopped(c *rpc.Client) error {
	st, err := interop.Talk.Open(c, &interop.Text{Text: "stop"})
	if err = toEnd(st, err); err == nil {
		err = st.End()
	}
	return err
}

// inTurn makes calls of all kinds one after the other.
func inTurn(c *rpc.Client) error {
	for _, call := range []func(*rpc.Client) error{numbers, total, talk, result, stopped, failing, numbers} {
		if err := call(c); err != nil {
			return err
		}
	}
	return nil
}

func together(c *rpc.Client) error {
	calls := []func(*rpc.Client) error{numbers, total, talk, stopped, numbers, total, talk, stopped}
	errs := make(chan error, len(calls))
	for _, call := range calls {
		go func() { errs <- call(c) }()
	}
	var err error
	for range calls {
		err = errors.Join(err, <-errs)
	}
	return err
}

// closes closes the connection; false if that hangs. It calls leave when it has closed
// or seems to hang, so that others go on meanwhile.
func closes(c *rpc.Client, leave func()) bool {
	done := make(chan struct{})
	go func() {
		_ = c.Close()
		close(done)
	}()
	select {
	case <-done:
		leave()
		return true
	case <-time.After(100 * time.Millisecond):
		leave()
	}
	select {
	case <-done:
		return true
	case <-time.After(*limit):
		return false
	}
}

// hung makes the calls on each of many connections, and counts the closes that hang.
func hung(addr string, call func(*rpc.Client) error) error {
	conf, err := check.ClientTLS(*ca)
	if err != nil {
		return err
	}
	var (
		hangs  atomic.Int32
		places = make(chan struct{}, *atOnce)
		errs   = make(chan error, *connections)
		wg     sync.WaitGroup
	)
	for range *connections {
		places <- struct{}{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			c, err := rpc.Dial(addr, conf, interop.Methods)
			if err != nil {
				<-places
				errs <- err
				return
			}
			errs <- call(c)
			if !closes(c, func() { <-places }) {
				hangs.Add(1)
			}
		}()
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	if n := hangs.Load(); n > 0 {
		return fmt.Errorf("%d of %d closes hang", n, *connections)
	}
	return nil
}

func main() {
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: rpc-closer [flags] ADDRESS")
		os.Exit(2)
	}
	r := &check.Run{Limit: 10 * time.Minute}
	for _, kind := range []struct {
		name  string
		call  func(*rpc.Client) error
		races bool // something is behind what the call waits for
	}{
		{"server stream", numbers, false},
		{"server stream that fails", failing, false},
		{"client stream, read to its end marker", total, false},
		{"client stream, read to its result", result, true},
		{"bidi, ended by the client", talk, false},
		{"bidi, ended by the server", stopped, false},
		{"all kinds in turn", inTurn, false},
		{"eight calls at once", together, false},
	} {
		if *quick && kind.races {
			continue
		}
		r.Do(kind.name, func() error { return hung(flag.Arg(0), kind.call) })
	}
	r.Finish()
}
