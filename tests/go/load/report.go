package load

// report is the result of one run, as one line of JSON; benches/load/src/report.rs says what the fields mean.
type report struct {
	Rpcs                  uint64  `json:"rpcs"`
	RpcsTotal             uint64  `json:"rpcs_total"`
	Seconds               float64 `json:"seconds"`
	Rps                   float64 `json:"rps"`
	P50Us                 float64 `json:"p50_us"`
	P90Us                 float64 `json:"p90_us"`
	P99Us                 float64 `json:"p99_us"`
	P999Us                float64 `json:"p999_us"`
	MaxUs                 float64 `json:"max_us"`
	MeanUs                float64 `json:"mean_us"`
	Errors                uint64  `json:"errors"`
	FirstError            *string `json:"first_error"`
	Stuck                 uint64  `json:"stuck"`
	Starved               uint64  `json:"starved"`
	ConnectS              float64 `json:"connect_s"`
	ClientCPUS            float64 `json:"client_cpu_s"`
	ClientContextSwitches int64   `json:"client_context_switches"`
}

func newReport(a Args, recorders []recorder, used usage) report {
	r := report{Seconds: a.Seconds.Seconds(), ClientCPUS: used.cpu.Seconds(), ClientContextSwitches: used.switches}
	var all histogram
	for i := range recorders {
		one := &recorders[i]
		all.add(&one.latencies)
		r.RpcsTotal += one.total
		r.Errors += one.errors
		r.Stuck += one.stuck
		if one.latencies.total == 0 {
			r.Starved++
		}
		if one.firstError != nil && r.FirstError == nil {
			text := one.firstError.Error()
			r.FirstError = &text
		}
	}
	us := func(share float64) float64 { return all.quantile(share) / 1e3 }
	r.P50Us, r.P90Us, r.P99Us, r.P999Us, r.MaxUs = us(0.5), us(0.9), us(0.99), us(0.999), us(1)
	r.MeanUs = all.mean() / 1e3
	r.Rpcs = all.total
	r.Rps = float64(r.Rpcs) / r.Seconds
	return r
}
