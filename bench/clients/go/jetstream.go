package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// jetStream has a stream as a work queue for each queue. A delayed message is a schedule: published
// to a subject of its own, as a subject has one, with the instant and the subject to publish it to.
type jetStream struct{ url string }

func newJetStream(url, _ string) (Peer, error) {
	address, _, _ := strings.Cut(url, "?")
	return &jetStream{address}, nil
}

func (j *jetStream) connect() (*nats.Conn, jetstream.JetStream, error) {
	conn, err := nats.Connect(j.url)
	if err != nil {
		return nil, nil, err
	}
	stream, err := jetstream.New(conn, jetstream.WithDefaultTimeout(30*time.Second))
	return conn, stream, err
}

func subject(queue Queue) string { return queue.Name + ".now" }

func (j *jetStream) Make(queue Queue) error {
	conn, stream, err := j.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = stream.CreateStream(context.Background(), jetstream.StreamConfig{
		Name: queue.Name, Subjects: []string{subject(queue), queue.Name + ".later.*"},
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
		AllowMsgSchedules: len(queue.DelaysMS) > 0,
	})
	return err
}

func (j *jetStream) Sender(queue Queue) (Sender, error) {
	conn, stream, err := j.connect()
	return &subjectSender{conn, stream, queue, 0}, err
}

func (j *jetStream) Consumer(queue Queue) (Consumer, error) {
	conn, stream, err := j.connect()
	if err != nil {
		return nil, err
	}
	consumer, err := stream.CreateConsumer(context.Background(), queue.Name, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: prefetch, FilterSubject: subject(queue),
	})
	if err != nil {
		return nil, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(prefetch))
	return &subjectConsumer{conn: conn, messages: messages}, err
}

type subjectSender struct {
	conn   *nats.Conn
	stream jetstream.JetStream
	queue  Queue
	number int
}

func (s *subjectSender) Send(payload []byte) error {
	_, err := s.stream.Publish(context.Background(), subject(s.queue), payload)
	return err
}

func (s *subjectSender) SendLater(payload []byte, dueMS, _ int64) error {
	s.number++
	message := nats.NewMsg(fmt.Sprintf("%s.later.%d", s.queue.Name, s.number))
	message.Data = payload
	// By hand: jetstream.WithScheduleAt would cut the instant to whole seconds, and be early.
	due := time.UnixMilli(dueMS).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	message.Header.Set("Nats-Schedule", "@at "+due)
	message.Header.Set("Nats-Schedule-Target", subject(s.queue))
	_, err := s.stream.PublishMsg(context.Background(), message)
	return err
}

func (s *subjectSender) Close() error {
	s.conn.Close()
	return nil
}

type subjectConsumer struct {
	conn     *nats.Conn
	messages jetstream.MessagesContext
	last     jetstream.Msg
}

func (c *subjectConsumer) Next(idle time.Duration) ([]byte, error) {
	message, err := c.messages.Next(jetstream.NextMaxWait(idle))
	if errors.Is(err, nats.ErrTimeout) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c.last = message
	return message.Data(), nil
}

func (c *subjectConsumer) Ack() error { return c.last.Ack() }

// Finish is a round trip on the same connection: the acks before it have arrived.
func (c *subjectConsumer) Finish() error { return c.conn.FlushTimeout(30 * time.Second) }

func (c *subjectConsumer) Close() error {
	c.messages.Stop()
	c.conn.Close()
	return nil
}
