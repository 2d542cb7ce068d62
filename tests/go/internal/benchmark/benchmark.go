// Package benchmark has the messages and unary methods of examples/proto/benchmark.proto.
package benchmark

import "interop/internal/rpc"

// Text is both Request and Response.
type Text struct {
	Message string
}

func (m *Text) Fields() []rpc.Field { return []rpc.Field{rpc.String(&m.Message)} }

// Bytes is both BytesRequest and BytesResponse.
type Bytes struct {
	Message []byte
}

func (m *Bytes) Fields() []rpc.Field { return []rpc.Field{rpc.Bytes(&m.Message)} }

var (
	Benchmark      = rpc.Unary[*Text, *Text]{Operation: 10}
	BytesBenchmark = rpc.Unary[*Bytes, *Bytes]{Operation: 11}
)

// Methods is how many of the file are here, from the first one on.
const Methods = 2
