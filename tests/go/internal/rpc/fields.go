// Package rpc puts the call conventions of fRPC on top of frisbee-go
// connections and polyglot values.
package rpc

import (
	"reflect"

	"github.com/loopholelabs/polyglot/v2"
)

// A Message is a pointer to a struct that lists its fields in wire order: single
// values, then lists, then messages and maps; within each group as declared.
type Message interface {
	Fields() []Field
}

// A Field is a variable inside a message, with the way it is written and read.
type Field struct {
	kind  polyglot.Kind // announced by a list or map that holds such values
	write func(*polyglot.BufferEncoder)
	read  func(*polyglot.BufferDecoder) error
}

func Bool(v *bool) Field {
	return value(v, polyglot.BoolKind, (*polyglot.BufferEncoder).Bool, (*polyglot.BufferDecoder).Bool)
}

func U32(v *uint32) Field {
	return value(v, polyglot.Uint32Kind, (*polyglot.BufferEncoder).Uint32, (*polyglot.BufferDecoder).Uint32)
}

func U64(v *uint64) Field {
	return value(v, polyglot.Uint64Kind, (*polyglot.BufferEncoder).Uint64, (*polyglot.BufferDecoder).Uint64)
}

func I32(v *int32) Field {
	return value(v, polyglot.Int32Kind, (*polyglot.BufferEncoder).Int32, (*polyglot.BufferDecoder).Int32)
}

func I64(v *int64) Field {
	return value(v, polyglot.Int64Kind, (*polyglot.BufferEncoder).Int64, (*polyglot.BufferDecoder).Int64)
}

func F32(v *float32) Field {
	return value(v, polyglot.Float32Kind, (*polyglot.BufferEncoder).Float32, (*polyglot.BufferDecoder).Float32)
}

func F64(v *float64) Field {
	return value(v, polyglot.Float64Kind, (*polyglot.BufferEncoder).Float64, (*polyglot.BufferDecoder).Float64)
}

func String(v *string) Field {
	return value(v, polyglot.StringKind, (*polyglot.BufferEncoder).String, (*polyglot.BufferDecoder).String)
}

func Bytes(v *[]byte) Field {
	return value(v, polyglot.BytesKind, (*polyglot.BufferEncoder).Bytes,
		func(d *polyglot.BufferDecoder) ([]byte, error) { return d.Bytes(nil) })
}

// Nested is a message as a field of its own. It may be absent: nil.
func Nested[M Message](v *M) Field {
	f := Item(v)
	present := f.read
	f.read = func(d *polyglot.BufferDecoder) error {
		if d.Nil() {
			return nil
		}
		return present(d)
	}
	return f
}

// Item is a message in a list or map, where an absent one reads as a default one.
func Item[M Message](v *M) Field {
	return Field{
		kind:  polyglot.AnyKind,
		write: func(e *polyglot.BufferEncoder) { writeMessage(e, *v) },
		read: func(d *polyglot.BufferDecoder) error {
			*v = fresh[M]()
			_, err := readMessage(d, *v)
			return err
		},
	}
}

// List is a repeated field; item describes one element. An empty list reads as nil.
func List[T any](item func(*T) Field, v *[]T) Field {
	kind := item(new(T)).kind
	return Field{
		kind: polyglot.SliceKind,
		write: func(e *polyglot.BufferEncoder) {
			e.Slice(uint32(len(*v)), kind)
			for i := range *v {
				item(&(*v)[i]).write(e)
			}
		},
		read: func(d *polyglot.BufferDecoder) error {
			n, err := d.Slice(kind)
			for ; err == nil && n > 0; n-- {
				x := new(T)
				err = item(x).read(d)
				*v = append(*v, *x)
			}
			return err
		},
	}
}

// Map is a map field. An empty map reads as nil.
func Map[K comparable, V any](key func(*K) Field, item func(*V) Field, m *map[K]V) Field {
	keyKind, kind := key(new(K)).kind, item(new(V)).kind
	return Field{
		kind: polyglot.MapKind,
		write: func(e *polyglot.BufferEncoder) {
			e.Map(uint32(len(*m)), keyKind, kind)
			for k, v := range *m {
				key(&k).write(e)
				item(&v).write(e)
			}
		},
		read: func(d *polyglot.BufferDecoder) error {
			if d.Nil() {
				return nil
			}
			n, err := d.Map(keyKind, kind)
			for ; err == nil && n > 0; n-- {
				k, v := new(K), new(V)
				if err = key(k).read(d); err == nil {
					err = item(v).read(d)
				}
				if *m == nil {
					*m = map[K]V{}
				}
				(*m)[*k] = *v
			}
			return err
		},
	}
}

func value[T any](v *T, kind polyglot.Kind,
	write func(*polyglot.BufferEncoder, T) *polyglot.BufferEncoder,
	read func(*polyglot.BufferDecoder) (T, error),
) Field {
	return Field{
		kind:  kind,
		write: func(e *polyglot.BufferEncoder) { write(e, *v) },
		read:  func(d *polyglot.BufferDecoder) (err error) { *v, err = read(d); return err },
	}
}

func writeMessage(e *polyglot.BufferEncoder, m Message) {
	if absent(m) {
		e.Nil()
		return
	}
	e.Uint8(0) // flags: nothing ever sets one
	for _, f := range m.Fields() {
		f.write(e)
	}
}

// readMessage fills a fresh message. What the other side sent as an error in place
// of the message is the failure; what cannot be read is the err.
func readMessage(d *polyglot.BufferDecoder, m Message) (failure, err error) {
	if d.Nil() {
		return nil, nil
	}
	if failure, err = d.Error(); err == nil {
		return failure, nil
	}
	if _, err = d.Uint8(); err != nil {
		return nil, err
	}
	for _, f := range m.Fields() {
		if err = f.read(d); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func absent(m Message) bool { return m == nil || reflect.ValueOf(m).IsNil() }

func fresh[M Message]() M { return reflect.New(reflect.TypeFor[M]().Elem()).Interface().(M) }
