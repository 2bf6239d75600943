package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const group = "group"

// redisStreams is a stream with a group, by go-redis: XADD, XREADGROUP that blocks, XACK. It has no
// delays.
type redisStreams struct{ options *redis.Options }

// redisOptions are of a client that is one connection.
func redisOptions(url string) (*redis.Options, error) {
	options, err := redis.ParseURL(url)
	if err == nil {
		options.PoolSize = 1
	}
	return options, err
}

func newRedisStreams(url, _ string) (Peer, error) {
	options, err := redisOptions(url)
	return &redisStreams{options}, err
}

func (r *redisStreams) Make(queue Queue) error {
	client := redis.NewClient(r.options)
	defer client.Close()
	return client.XGroupCreateMkStream(context.Background(), queue.Name, group, "0").Err()
}

func (r *redisStreams) Sender(queue Queue) (Sender, error) {
	return &streamSender{redis.NewClient(r.options), queue.Name}, nil
}

func (r *redisStreams) Consumer(queue Queue) (Consumer, error) {
	return &streamConsumer{client: redis.NewClient(r.options), stream: queue.Name}, nil
}

type streamSender struct {
	client *redis.Client
	stream string
}

func (s *streamSender) Send(payload []byte) error {
	added := redis.XAddArgs{Stream: s.stream, Values: []any{"p", payload}}
	return s.client.XAdd(context.Background(), &added).Err()
}

func (s *streamSender) SendLater([]byte, int64, int64) error {
	return errors.New("a stream has no delays")
}

func (s *streamSender) Close() error { return s.client.Close() }

type streamConsumer struct {
	client *redis.Client
	stream string
	ahead  []redis.XMessage
	last   string
}

func (c *streamConsumer) Next(idle time.Duration) ([]byte, error) {
	if len(c.ahead) == 0 {
		found, err := c.client.XReadGroup(context.Background(), &redis.XReadGroupArgs{
			Group: group, Consumer: "one", Streams: []string{c.stream, ">"}, Count: prefetch, Block: idle,
		}).Result()
		if errors.Is(err, redis.Nil) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		c.ahead = found[0].Messages
	}
	message := c.ahead[0]
	c.ahead, c.last = c.ahead[1:], message.ID
	return []byte(message.Values["p"].(string)), nil
}

func (c *streamConsumer) Ack() error {
	return c.client.XAck(context.Background(), c.stream, group, c.last).Err()
}

func (c *streamConsumer) Finish() error { return nil }

func (c *streamConsumer) Close() error { return c.client.Close() }
