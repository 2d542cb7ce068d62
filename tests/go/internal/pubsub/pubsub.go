// Package pubsub is a client of a broker as docs/pubsub.md describes it, on
// frisbee-go alone.
package pubsub

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"sync"

	frisbee "github.com/loopholelabs/frisbee-go"
	"github.com/loopholelabs/frisbee-go/pkg/packet"
)

// Base is the operation that the numbers of packets count from.
const Base = 7000

const (
	hello = iota
	welcome
	subscribe
	subscribed
	unsubscribe
	ended
	publish
	published
	message
	missing
	credit
	allow
	refused
	kinds
)

// Policies of subscriptions.
const (
	DropNewest = iota
	DropOldest
	KeepLatest
	Block
	Disconnect
)

// Flags of messages.
const (
	acknowledge = 1
	Retain      = 2
	reply       = 4
)

// Event is one item of a subscription: a message, or as many that are missing.
type Event struct {
	Subject, Reply, Payload string
	Retained                bool
	Missing                 uint64
	// Ended is set once, at last.
	Ended bool
	cost  uint32
}

// Subscription has the events of a pattern.
type Subscription struct {
	Events chan Event
	client *Client
	number uint32
	window uint32
	owed   uint32
}

// Refused is the answer of a broker that does not do what it was asked for.
type Refused struct {
	Code byte
	Text string
}

func (r *Refused) Error() string { return fmt.Sprintf("refused with code %d: %s", r.Code, r.Text) }

// Client is one connection to a broker.
type Client struct {
	client *frisbee.Client

	mu            sync.Mutex
	changed       *sync.Cond
	credit        int64
	lastID        uint16
	answers       map[uint16]chan any
	subscriptions map[uint32]*Subscription
	// Wanted are subscriptions that the broker has not answered yet.
	wanted map[uint16]*Subscription
}

// Dial connects, and waits until the broker has answered.
func Dial(addr string, conf *tls.Config) (*Client, error) {
	c := &Client{
		answers:       map[uint16]chan any{},
		subscriptions: map[uint32]*Subscription{},
		wanted:        map[uint16]*Subscription{},
	}
	c.changed = sync.NewCond(&c.mu)
	table := frisbee.HandlerTable{}
	for kind := uint16(0); kind < kinds; kind++ {
		table[Base+kind] = func(_ context.Context, p *packet.Packet) (*packet.Packet, frisbee.Action) {
			c.handle(kind, p.Metadata.Id, append([]byte(nil), p.Content.Bytes()...))
			return nil, frisbee.NONE
		}
	}
	var opts []frisbee.Option
	if conf != nil {
		opts = append(opts, frisbee.WithTLS(conf))
	}
	var err error
	if c.client, err = frisbee.NewClient(table, context.Background(), opts...); err != nil {
		return nil, err
	}
	if err = c.client.Connect(addr); err != nil {
		return nil, err
	}
	answer, err := c.ask(hello, []byte{1}, nil)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.credit = int64(binary.BigEndian.Uint32(answer.([]byte)[1:]))
	c.mu.Unlock()
	return c, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.client.Close() }

// Subscribe subscribes to a pattern, as a member of a group if that has a name. What waits here counts towards the window.
func (c *Client) Subscribe(pattern, group string, policy byte, window uint32, slot byte) (*Subscription, error) {
	content := append([]byte{policy}, binary.BigEndian.AppendUint32(nil, window)...)
	content = append(content, slot)
	content = appendShort(appendShort(content, pattern), group)
	s := &Subscription{Events: make(chan Event, 100000), client: c, window: window}
	_, err := c.ask(subscribe, content, s)
	return s, err
}

// Next returns the next event, and gives the broker credit for it.
func (s *Subscription) Next() Event {
	e := <-s.Events
	s.owed += e.cost
	if s.window > 0 && s.owed*2 >= s.window {
		content := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, s.number), s.owed)
		s.owed = 0
		_ = s.client.send(credit, 0, content)
	}
	return e
}

// Unsubscribe ends the subscription. The last event says so.
func (s *Subscription) Unsubscribe() error {
	return s.client.send(unsubscribe, 0, binary.BigEndian.AppendUint32(nil, s.number))
}

// Publish publishes a message when there is credit for it.
func (c *Client) Publish(subject, payload string) error {
	content := publication(0, subject, "", payload)
	c.spend(content)
	return c.send(publish, 0, content)
}

// PublishAcknowledged publishes a message, and returns how many subscriptions it goes to.
func (c *Client) PublishAcknowledged(flags byte, subject, replyTo, payload string) (uint32, error) {
	content := publication(flags|acknowledge, subject, replyTo, payload)
	c.spend(content)
	answer, err := c.ask(publish, content, nil)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(answer.([]byte)), nil
}

func (c *Client) spend(content []byte) {
	c.mu.Lock()
	for c.credit <= 0 {
		c.changed.Wait()
	}
	c.credit -= int64(len(content)) + 64
	c.mu.Unlock()
}

func (c *Client) handle(kind, id uint16, content []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	number := func() uint32 { return binary.BigEndian.Uint32(content) }
	switch kind {
	case subscribed:
		s := c.wanted[id]
		delete(c.wanted, id)
		s.number = number()
		c.subscriptions[s.number] = s
		c.answer(id, content)
	case welcome, published:
		c.answer(id, content)
	case refused:
		c.answer(id, &Refused{Code: content[1], Text: string(content[2:])})
	case allow:
		c.credit += int64(number())
		c.changed.Broadcast()
	case message:
		if s := c.subscriptions[number()]; s != nil {
			e := Event{Retained: content[4]&Retain != 0, cost: uint32(len(content)) + 64}
			rest := content[5:]
			e.Subject, rest = short(rest)
			if content[4]&reply != 0 {
				e.Reply, rest = short(rest)
			}
			e.Payload = string(rest)
			s.Events <- e
		}
	case missing:
		if s := c.subscriptions[number()]; s != nil {
			s.Events <- Event{Missing: binary.BigEndian.Uint64(content[4:])}
		}
	case ended:
		if s := c.subscriptions[number()]; s != nil {
			delete(c.subscriptions, number())
			s.Events <- Event{Ended: true, Missing: binary.BigEndian.Uint64(content[5:])}
		}
	}
}

func (c *Client) answer(id uint16, answer any) {
	if answers := c.answers[id]; answers != nil {
		delete(c.answers, id)
		answers <- answer
	}
}

func (c *Client) ask(kind uint16, content []byte, s *Subscription) (any, error) {
	answers := make(chan any, 1)
	c.mu.Lock()
	c.lastID++
	id := c.lastID
	c.answers[id] = answers
	if s != nil {
		c.wanted[id] = s
	}
	c.mu.Unlock()
	if err := c.send(kind, id, content); err != nil {
		return nil, err
	}
	answer := <-answers
	if err, ok := answer.(*Refused); ok {
		return nil, err
	}
	return answer, nil
}

func (c *Client) send(kind, id uint16, content []byte) error {
	p := packet.Get()
	p.Metadata.Id = id
	p.Metadata.Operation = Base + kind
	p.Content.Write(content)
	p.Metadata.ContentLength = uint32(len(content))
	return c.client.WritePacket(p)
}

func publication(flags byte, subject, replyTo, payload string) []byte {
	if replyTo != "" {
		flags |= reply
	}
	content := appendShort([]byte{flags}, subject)
	if replyTo != "" {
		content = appendShort(content, replyTo)
	}
	return append(content, payload...)
}

func appendShort(to []byte, text string) []byte {
	return append(append(to, byte(len(text))), text...)
}

func short(from []byte) (string, []byte) {
	n := int(from[0])
	return string(from[1 : 1+n]), from[1+n:]
}
