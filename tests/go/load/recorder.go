package load

import (
	"context"
	"sync"
	"time"
)

// A recorder is what one connection saw.
type recorder struct {
	mu         sync.Mutex
	latencies  histogram // of the calls that completed inside the window
	total      uint64
	errors     uint64
	firstError error
	stuck      uint64
}

// callRepeatedly ends with the window, or the first call that fails. It looks at the clock after so many calls.
func (r *recorder) callRepeatedly(ctx context.Context, call Call, calls uint32, w window) {
	for sent := time.Now(); sent.Before(w.end); {
		var err error
		for i := uint32(0); i < calls && err == nil; i++ {
			err = call(ctx)
		}
		answered := time.Now()
		if !r.note(ctx, err, answered.Sub(sent), calls, w.contains(answered)) {
			return
		}
		sent = answered
	}
}

// note counts calls that came one after the other, or the failure of one.
func (r *recorder) note(ctx context.Context, err error, took time.Duration, calls uint32, counts bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.total += uint64(calls)
		if counts {
			r.latencies.record(uint64(took)/uint64(calls), calls)
		}
	case ctx.Err() != nil:
		r.stuck++
	default:
		r.errors++
		if r.firstError == nil {
			r.firstError = err
		}
	}
	return err == nil
}

func (w window) contains(t time.Time) bool { return !t.Before(w.start) && t.Before(w.end) }
