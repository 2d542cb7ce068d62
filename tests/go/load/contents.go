package load

// contents differ by connection and task: slices of one pattern of ASCII, each shifted by a byte.
type contents struct {
	pattern string
	size    int
}

func newContents(size int) contents {
	pattern := make([]byte, size+shifts)
	state := uint32(0x9e3779b9)
	for i := range pattern {
		state ^= state << 13
		state ^= state >> 17
		state ^= state << 5
		pattern[i] = byte(state) & 0x7f
	}
	return contents{string(pattern), size}
}

func (c contents) of(number int) string {
	shift := number % shifts
	return c.pattern[shift : shift+c.size]
}

const shifts = 4096
