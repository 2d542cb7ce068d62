package load

import "testing"

func TestQuantilesAreLessThanOnePercentTooHigh(t *testing.T) {
	for value := uint64(1); value < 1<<40; value += value/3 + 1 {
		var h histogram
		h.record(value, 1)
		if got := h.quantile(0.5); got < float64(value) || got > float64(value)*1.01 {
			t.Errorf("%d reads as %v", value, got)
		}
	}
}

func TestTheMedianIsInTheMiddle(t *testing.T) {
	var all histogram
	for value := range uint64(101) {
		var one histogram
		one.record(value, 1)
		all.add(&one)
	}
	if got := all.quantile(0.5); got != 50 {
		t.Errorf("median %v", got)
	}
	if got := all.mean(); got != 50 {
		t.Errorf("mean %v", got)
	}
}
