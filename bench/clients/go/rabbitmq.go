package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// rabbitMQ has queues of one type. Its delays are dead letters of queues with a time to live, in two
// patterns: bench/peers/rabbitmq.py says how.
type rabbitMQ struct{ url, queueType string }

func newRabbitMQ(url, variant string) (Peer, error) {
	// What kombu calls `//` is the virtual host `/`.
	return &rabbitMQ{strings.TrimSuffix(url, "//") + "/", variant}, nil
}

func (r *rabbitMQ) connect() (*amqp091.Connection, *amqp091.Channel, error) {
	connection, err := amqp091.Dial(r.url)
	if err != nil {
		return nil, nil, err
	}
	channel, err := connection.Channel()
	return connection, channel, err
}

func (r *rabbitMQ) Make(queue Queue) error {
	connection, channel, err := r.connect()
	if err != nil {
		return err
	}
	defer connection.Close()
	declare := func(name string, more amqp091.Table) error {
		arguments := amqp091.Table{"x-queue-type": r.queueType}
		for key, value := range more {
			arguments[key] = value
		}
		_, err := channel.QueueDeclare(name, true, false, false, false, arguments)
		return err
	}
	if err := declare(queue.Name, nil); err != nil {
		return err
	}
	waiting := amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue.Name}
	if r.queueType == "quorum" { // so that nothing is lost on the way
		waiting["x-dead-letter-strategy"], waiting["x-overflow"] = "at-least-once", "reject-publish"
	}
	if queue.Pattern == oneQueue {
		return declare(queue.Name+".later", waiting)
	}
	for _, delayMS := range queue.DelaysMS {
		waiting["x-message-ttl"] = delayMS
		if err := declare(later(queue, delayMS), waiting); err != nil {
			return err
		}
	}
	return nil
}

const oneQueue = "one_queue"

func later(queue Queue, delayMS int64) string { return fmt.Sprintf("%s.%d", queue.Name, delayMS) }

func (r *rabbitMQ) Sender(queue Queue) (Sender, error) {
	connection, channel, err := r.connect()
	if err != nil {
		return nil, err
	}
	returned := channel.NotifyReturn(make(chan amqp091.Return, 1))
	return &publisher{connection, channel, queue, returned}, channel.Confirm(false)
}

func (r *rabbitMQ) Consumer(queue Queue) (Consumer, error) {
	connection, channel, err := r.connect()
	if err != nil {
		return nil, err
	}
	if err := channel.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	arrivals, err := channel.Consume(queue.Name, "taker", false, false, false, false, nil)
	return &subscriber{
		connection: connection, channel: channel, arrivals: arrivals, timer: time.NewTimer(time.Hour),
	}, err
}

type publisher struct {
	connection *amqp091.Connection
	channel    *amqp091.Channel
	queue      Queue
	returned   <-chan amqp091.Return
}

func (p *publisher) Send(payload []byte) error { return p.publish(p.queue.Name, payload, "") }

func (p *publisher) SendLater(payload []byte, _, delayMS int64) error {
	if p.queue.Pattern == oneQueue {
		return p.publish(p.queue.Name+".later", payload, fmt.Sprint(delayMS))
	}
	return p.publish(later(p.queue, delayMS), payload, "")
}

func (p *publisher) publish(name string, payload []byte, lives string) error {
	message := amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: payload, Expiration: lives}
	// Mandatory: what reaches no queue would be confirmed all the same.
	confirmed, err := p.channel.PublishWithDeferredConfirm("", name, true, false, message)
	if err != nil {
		return err
	}
	if !confirmed.Wait() {
		return fmt.Errorf("%s: refused", name)
	}
	select {
	case back := <-p.returned:
		return fmt.Errorf("%s: %s", name, back.ReplyText)
	default:
		return nil
	}
}

func (p *publisher) Close() error { return p.connection.Close() }

type subscriber struct {
	connection *amqp091.Connection
	channel    *amqp091.Channel
	arrivals   <-chan amqp091.Delivery
	timer      *time.Timer
	last       amqp091.Delivery
}

func (s *subscriber) Next(idle time.Duration) ([]byte, error) {
	s.timer.Reset(idle)
	select {
	case arrival, is := <-s.arrivals:
		if !is {
			return nil, errors.New("the channel is closed")
		}
		s.last = arrival
		return arrival.Body, nil
	case <-s.timer.C:
		return nil, nil
	}
}

func (s *subscriber) Ack() error { return s.last.Ack(false) }

// Finish is answered after all acks were taken; what came ahead goes back.
func (s *subscriber) Finish() error { return s.channel.Cancel("taker", false) }

func (s *subscriber) Close() error { return s.connection.Close() }
