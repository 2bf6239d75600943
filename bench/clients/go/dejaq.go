package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dejaqueue"
)

// dejaQ is a broker by clients/go: a client for each connection. Acks do not wait for each other; they
// count when Finish has returned without an error: then they are durable.
type dejaQ struct{ url string }

func newDejaQ(url, _ string) (Peer, error) { return &dejaQ{url}, nil }

func (d *dejaQ) Make(queue Queue) error {
	client, err := dejaqueue.Dial(d.url, dejaqueue.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	return client.CreateTopic(context.Background(), queue.Name, nil)
}

func (d *dejaQ) Sender(queue Queue) (Sender, error) {
	client, err := dejaqueue.Dial(d.url, dejaqueue.Options{})
	if err != nil {
		return nil, err
	}
	return &topicSender{client, client.Producer(queue.Name)}, nil
}

func (d *dejaQ) Consumer(queue Queue) (Consumer, error) {
	client, err := dejaqueue.Dial(d.url, dejaqueue.Options{})
	if err != nil {
		return nil, err
	}
	consumer := client.Consume(queue.Name, dejaqueue.ConsumeOptions{Credit: prefetch})
	return &topicConsumer{client: client, consumer: consumer}, nil
}

type topicSender struct {
	client   *dejaqueue.Client
	producer *dejaqueue.Producer
}

func (s *topicSender) Send(payload []byte) error {
	return s.send(&dejaqueue.Message{Payload: payload})
}

func (s *topicSender) SendLater(payload []byte, dueMS, _ int64) error {
	return s.send(&dejaqueue.Message{Payload: payload, Due: time.UnixMilli(dueMS)})
}

func (s *topicSender) send(message *dejaqueue.Message) error {
	sent, err := s.producer.Send(context.Background(), message)
	if err == nil && sent.Statuses[0] != dejaqueue.OK {
		err = fmt.Errorf("not sent: status %v", sent.Statuses[0])
	}
	return err
}

func (s *topicSender) Close() error {
	s.producer.Close()
	return s.client.Close()
}

type topicConsumer struct {
	client   *dejaqueue.Client
	consumer *dejaqueue.Consumer
	last     *dejaqueue.Message
}

func (c *topicConsumer) Next(idle time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), idle)
	defer cancel()
	message, err := c.consumer.Receive(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c.last = message
	return message.Payload, nil
}

func (c *topicConsumer) Ack() error {
	return c.consumer.AckAsync(context.Background(), c.last)
}

func (c *topicConsumer) Finish() error { return c.consumer.Flush(context.Background()) }

func (c *topicConsumer) Close() error {
	return errors.Join(c.consumer.Close(), c.client.Close())
}
