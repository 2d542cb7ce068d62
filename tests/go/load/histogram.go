package load

import "math/bits"

// A histogram counts nanoseconds in buckets less than one percent wide. It grows to the largest value.
type histogram struct {
	counts []uint32
	total  uint64
	sum    float64
}

func (h *histogram) record(value uint64, times uint32) {
	i := bucket(value)
	if i >= len(h.counts) {
		h.counts = append(h.counts, make([]uint32, i+1-len(h.counts))...)
	}
	h.counts[i] += times
	h.total += uint64(times)
	h.sum += float64(value) * float64(times)
}

func (h *histogram) add(other *histogram) {
	if n := len(other.counts) - len(h.counts); n > 0 {
		h.counts = append(h.counts, make([]uint32, n)...)
	}
	for i, count := range other.counts {
		h.counts[i] += count
	}
	h.total += other.total
	h.sum += other.sum
}

func (h *histogram) mean() float64 {
	if h.total == 0 {
		return 0
	}
	return h.sum / float64(h.total)
}

// quantile is the value that this share of all values does not exceed.
func (h *histogram) quantile(share float64) float64 {
	wanted := share * float64(h.total)
	var seen uint64
	for i, count := range h.counts {
		if seen += uint64(count); seen > 0 && float64(seen) >= wanted {
			return highest(i)
		}
	}
	return 0
}

func bucket(value uint64) int {
	shift := max(bits.Len64(value)-mantissa, 0)
	return shift<<(mantissa-1) + int(value>>shift)
}

// highest is the largest value in the bucket.
func highest(bucket int) float64 {
	shift := max(bucket>>(mantissa-1)-1, 0)
	return float64(uint64(bucket-shift<<(mantissa-1)+1)<<shift - 1)
}

const mantissa = 8
