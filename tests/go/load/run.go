package load

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// Connect makes a connection of its own.
type Connect func(addr string) (Prepare, error)

// Prepare makes calls over the connection that bring this content.
type Prepare func(content string) Call

// Call waits for the answer, or for the next message of a stream, and verifies it.
type Call func(context.Context) error

// ErrWrongAnswer is the error of a call whose answer is not what was sent.
var ErrWrongAnswer = errors.New("a wrong answer")

// Run connects, keeps each connection's goroutines calling until the window ends, and prints the report.
func Run(a Args, connect Connect) error {
	connecting := time.Now()
	connections, err := connectAll(a, connect)
	if err != nil {
		return err
	}
	connected := time.Since(connecting)

	start := time.Now().Add(a.Warmup)
	w := window{start, start.Add(a.Seconds)}
	ctx, cancel := context.WithDeadline(context.Background(), w.end.Add(answerGrace))
	defer cancel()
	used := make(chan usage)
	go w.watch(used)
	recorders := make([]recorder, a.Clients)
	contents := newContents(a.Size)
	calls := uint32(1)
	if a.Streaming && a.Size < large {
		calls = messagesPerSample
	}
	var tasks sync.WaitGroup
	for i, prepare := range connections {
		for id := range a.Concurrent {
			call := prepare(contents.of(i*a.Concurrent + id))
			tasks.Add(1)
			go func() {
				defer tasks.Done()
				recorders[i].callRepeatedly(ctx, call, calls, w)
			}()
		}
	}
	tasks.Wait()
	r := newReport(a, recorders, <-used)
	r.ConnectS = connected.Seconds()
	return json.NewEncoder(os.Stdout).Encode(r)
}

// connectAll makes some connections at once: those that frisbee-go already has slow down each further one.
func connectAll(a Args, connect Connect) ([]Prepare, error) {
	connections := make([]Prepare, a.Clients)
	errs := make(chan error, a.Clients)
	slots := make(chan struct{}, connectingMax)
	for i := range connections {
		slots <- struct{}{}
		go func() {
			var err error
			connections[i], err = connect(a.Addr)
			errs <- err
			<-slots
		}()
	}
	for range connections {
		if err := <-errs; err != nil {
			return nil, err
		}
	}
	return connections, nil
}

// A window is the span of time whose calls are counted.
type window struct{ start, end time.Time }

// watch measures what this process has of the CPU during the window.
func (w window) watch(used chan<- usage) {
	time.Sleep(time.Until(w.start))
	before := usageNow()
	time.Sleep(time.Until(w.end))
	after := usageNow()
	used <- usage{after.cpu - before.cpu, after.switches - before.switches}
}

type usage struct {
	cpu      time.Duration
	switches int64
}

func usageNow() usage {
	var r syscall.Rusage
	Exit(syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return usage{time.Duration(r.Utime.Nano() + r.Stime.Nano()), r.Nvcsw + r.Nivcsw}
}

const connectingMax = 32

// Small messages of a stream take as long as a look at the clock.
const (
	messagesPerSample = 64
	large             = 4 << 10
)

// A call without an answer so long after the window is stuck.
const answerGrace = 2 * time.Second
