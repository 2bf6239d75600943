package main

import (
	"errors"
	"net/url"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// beanstalkd has a tube for each queue. Its delays are whole seconds: they are rounded up, as a
// message must not come early.
type beanstalkd struct{ address string }

func newBeanstalkd(at, _ string) (Peer, error) {
	place, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	return &beanstalkd{place.Host}, nil
}

func (b *beanstalkd) Make(Queue) error { return nil }

func (b *beanstalkd) Sender(queue Queue) (Sender, error) {
	conn, err := beanstalk.Dial("tcp", b.address)
	if err != nil {
		return nil, err
	}
	return &tubeSender{conn, beanstalk.NewTube(conn, queue.Name)}, nil
}

func (b *beanstalkd) Consumer(queue Queue) (Consumer, error) {
	conn, err := beanstalk.Dial("tcp", b.address)
	if err != nil {
		return nil, err
	}
	return &tubeConsumer{conn: conn, tubes: beanstalk.NewTubeSet(conn, queue.Name)}, nil
}

type tubeSender struct {
	conn *beanstalk.Conn
	tube *beanstalk.Tube
}

func (s *tubeSender) Send(payload []byte) error { return s.SendLater(payload, 0, 0) }

func (s *tubeSender) SendLater(payload []byte, _, delayMS int64) error {
	delay := time.Duration((delayMS+999)/1_000) * time.Second
	_, err := s.tube.Put(payload, 1<<16, delay, ttr)
	return err
}

func (s *tubeSender) Close() error { return s.conn.Close() }

type tubeConsumer struct {
	conn  *beanstalk.Conn
	tubes *beanstalk.TubeSet
	last  uint64
}

func (c *tubeConsumer) Next(idle time.Duration) ([]byte, error) {
	id, payload, err := c.tubes.Reserve(idle + time.Second) // of which it takes whole seconds
	if errors.Is(err, beanstalk.ErrTimeout) {
		return nil, nil
	}
	c.last = id
	return payload, err
}

func (c *tubeConsumer) Ack() error { return c.conn.Delete(c.last) }

func (c *tubeConsumer) Finish() error { return nil }

func (c *tubeConsumer) Close() error { return c.conn.Close() }
