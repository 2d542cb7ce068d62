// pubsub-client runs a list of checks against a broker that somebody else
// subscribes to as well: who answers requests under "upper" by the payload in
// capitals, and whose queue for one subscription is at most 100,000 bytes long.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"interop/internal/check"
	"interop/internal/pubsub"
)

var (
	ca    = flag.String("tls-ca", "", "connect with TLS and trust this certificate file")
	quick = flag.Bool("quick", false, "leave out the checks that wait for seconds")
	idle  = flag.Bool("idle", false, "leave out all others")
	addr  string
)

func dial() *pubsub.Client {
	conf, err := check.ClientTLS(*ca)
	if err != nil {
		panic(err)
	}
	c, err := pubsub.Dial(addr, conf)
	if err != nil {
		panic(err)
	}
	return c
}

func want(s *pubsub.Subscription, subject, payload string) error {
	e := s.Next()
	return check.Same("event", []any{e.Subject, e.Payload, e.Missing, e.Ended}, []any{subject, payload, 0, false})
}

func main() {
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: pubsub-client [flags] ADDRESS")
		os.Exit(2)
	}
	addr = flag.Arg(0)
	r := &check.Run{Limit: 30 * time.Second, Quick: *quick, Idle: *idle}
	var c *pubsub.Client
	r.Always("connect", func() error { c = dial(); return nil })
	if c == nil {
		r.Finish()
	}
	name := func(what string) string { return fmt.Sprint(what, ".", time.Now().UnixNano()) }
	r.Do("subjects that a pattern stands for", func() error {
		own := name("orders")
		s, err := c.Subscribe(own+".*.created", "", pubsub.Block, 100000, 0)
		if err != nil {
			return err
		}
		for _, place := range []string{"eu", "us"} {
			for _, what := range []string{"created", "paid"} {
				if err = c.Publish(own+"."+place+"."+what, place); err != nil {
					return err
				}
			}
		}
		if err = want(s, own+".eu.created", "eu"); err != nil {
			return err
		}
		return want(s, own+".us.created", "us")
	})
	r.Do("5000 messages in order, with credit both ways", func() error {
		other := dial()
		defer other.Close()
		own := name("many")
		s, err := other.Subscribe(own, "", pubsub.Block, 20000, 0)
		if err != nil {
			return err
		}
		failed := make(chan error, 1)
		go func() {
			for i := 0; i < 5000; i++ {
				if err := c.Publish(own, fmt.Sprint(i, strings.Repeat(".", 500))); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
		for i := 0; i < 5000; i++ {
			if err := want(s, own, fmt.Sprint(i, strings.Repeat(".", 500))); err != nil {
				return err
			}
		}
		return <-failed
	})
	r.Do("messages that are dropped are told in place", func() error {
		own := name("dropped")
		s, err := c.Subscribe(own, "", pubsub.DropOldest, 1000, 0)
		if err != nil {
			return err
		}
		for i := 0; i < 2000; i++ {
			if _, err = c.PublishAcknowledged(0, own, "", strings.Repeat("x", 1000)); err != nil {
				return err
			}
		}
		came, gone := 0, 0
		for came+gone < 2000 {
			e := s.Next()
			gone += int(e.Missing)
			if e.Missing == 0 {
				came++
			}
		}
		if came+gone != 2000 || gone < 1000 {
			return fmt.Errorf("%d came, %d are missing", came, gone)
		}
		return nil
	})
	r.Do("one member of a group gets each message", func() error {
		other := dial()
		defer other.Close()
		own := name("jobs")
		a, err := c.Subscribe(own, "workers", pubsub.Block, 100000, 0)
		if err != nil {
			return err
		}
		b, err := other.Subscribe(own, "workers", pubsub.Block, 100000, 0)
		if err != nil {
			return err
		}
		for i := 0; i < 10; i++ {
			n, err := c.PublishAcknowledged(0, own, "", fmt.Sprint(i))
			if err != nil || n != 1 {
				return fmt.Errorf("%d, %w", n, err)
			}
		}
		for i := 0; i < 10; i += 2 {
			if err := errors.Join(want(a, own, fmt.Sprint(i)), want(b, own, fmt.Sprint(i+1))); err != nil {
				return err
			}
		}
		return nil
	})
	r.Do("the last retained value", func() error {
		own := name("state")
		for _, value := range []string{"first", "last"} {
			if _, err := c.PublishAcknowledged(pubsub.Retain, own, "", value); err != nil {
				return err
			}
		}
		s, err := c.Subscribe(own, "", pubsub.Block, 1000, 0)
		if err != nil {
			return err
		}
		e := s.Next()
		return check.Same("value", []any{e.Payload, e.Retained}, []any{"last", true})
	})
	r.Do("a request, and one that nobody is there for", func() error {
		own := name("_INBOX")
		s, err := c.Subscribe(own, "", pubsub.DropNewest, 0, 0)
		if err != nil {
			return err
		}
		n, err := c.PublishAcknowledged(0, "upper", own, "hello")
		if err != nil || n != 1 {
			return fmt.Errorf("%d, %w", n, err)
		}
		if err = want(s, own, "HELLO"); err != nil {
			return err
		}
		n, err = c.PublishAcknowledged(0, name("nobody"), own, "")
		if err != nil {
			return err
		}
		return check.Same("subscriptions", n, 0)
	})
	r.Do("the end of a subscription", func() error {
		own := name("ended")
		s, err := c.Subscribe(own, "", pubsub.Block, 1000, 0)
		if err != nil {
			return err
		}
		if err = s.Unsubscribe(); err != nil {
			return err
		}
		if e := s.Next(); !e.Ended {
			return fmt.Errorf("%+v", e)
		}
		n, err := c.PublishAcknowledged(0, own, "", "")
		if err != nil {
			return err
		}
		return check.Same("subscriptions", n, 0)
	})
	r.Do("what cannot be is refused", func() error {
		var refused *pubsub.Refused
		if _, err := c.Subscribe("a..b", "", 0, 0, 0); !errors.As(err, &refused) || refused.Code != 0 {
			return fmt.Errorf("subscribed: %v", err)
		}
		if _, err := c.PublishAcknowledged(0, "a.*", "", ""); !errors.As(err, &refused) || refused.Code != 0 {
			return fmt.Errorf("published: %v", err)
		}
		return nil
	})
	r.Wait("a connection that is idle stays", func() error {
		time.Sleep(6 * time.Second)
		_, err := c.PublishAcknowledged(0, name("late"), "", "")
		return err
	})
	r.Finish()
}
