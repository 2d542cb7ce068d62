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

// callRepeatedly ends with the window, or the first call that fails.
func (r *recorder) callRepeatedly(ctx context.Context, call Call, w window) {
	for sent := time.Now(); sent.Before(w.end); {
		err := call(ctx)
		answered := time.Now()
		if !r.note(ctx, err, answered.Sub(sent), w.contains(answered)) {
			return
		}
		sent = answered
	}
}

func (r *recorder) note(ctx context.Context, err error, latency time.Duration, counts bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.total++
		if counts {
			r.latencies.record(uint64(latency))
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
