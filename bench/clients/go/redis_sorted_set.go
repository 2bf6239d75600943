package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// The scripts are those of bench/peers/redis_sorted_set.py and bench/systems/redis.py.
var (
	// KEYS due, payloads; ARGV id, due, payload. What is due before all else wakes a consumer.
	sendScript = redis.NewScript(`
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
if redis.call('ZRANGE', KEYS[1], 0, 0)[1] == ARGV[1] then redis.call('PUBLISH', KEYS[1], '') end
return 1
`)
	// KEYS due, leased, payloads; ARGV now, how many, end of the lease. Answers ids and payloads.
	leaseScript = redis.NewScript(`
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
local count = #ids
if count == 0 then return {{}, {}} end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, count - 1)
local leased = {}
for i = 1, count do leased[2 * i - 1] = ARGV[3]; leased[2 * i] = ids[i] end
redis.call('ZADD', KEYS[2], unpack(leased))
return {ids, redis.call('HMGET', KEYS[3], unpack(ids))}
`)
	// KEYS leased, payloads; ARGV an id.
	ackScript = redis.NewScript(`
redis.call('HDEL', KEYS[2], ARGV[1])
return redis.call('ZREM', KEYS[1], ARGV[1])
`)
)

const leaseMS = 120_000

// redisSortedSet is a sorted set by due time, by go-redis. A consumer that finds nothing waits until
// the next due time, or until it is told by PUBLISH that something is due before; it does not poll.
type redisSortedSet struct{ options *redis.Options }

func newRedisSortedSet(url, _ string) (Peer, error) {
	options, err := redisOptions(url)
	return &redisSortedSet{options}, err
}

func (r *redisSortedSet) Make(Queue) error { return nil }

func (r *redisSortedSet) Sender(queue Queue) (Sender, error) {
	prefix := make([]byte, 6)
	_, _ = rand.Read(prefix) // it does not fail
	keys := []string{queue.Name, queue.Name + "_payloads"}
	return &setSender{redis.NewClient(r.options), keys, hex.EncodeToString(prefix), 0}, nil
}

func (r *redisSortedSet) Consumer(queue Queue) (Consumer, error) {
	client := redis.NewClient(r.options)
	bell := client.Subscribe(context.Background(), queue.Name)
	if _, err := bell.Receive(context.Background()); err != nil { // that it is subscribed
		return nil, err
	}
	leased, payloads := queue.Name+"_leased", queue.Name+"_payloads"
	return &setConsumer{
		client: client, bell: bell, rings: bell.Channel(), due: queue.Name, leased: leased, payloads: payloads,
		timer: time.NewTimer(time.Hour),
	}, nil
}

type setSender struct {
	client *redis.Client
	keys   []string
	prefix string
	number int
}

func (s *setSender) Send(payload []byte) error { return s.SendLater(payload, nowMS(), 0) }

func (s *setSender) SendLater(payload []byte, dueMS, _ int64) error {
	s.number++
	id := s.prefix + strconv.Itoa(s.number)
	return sendScript.Run(context.Background(), s.client, s.keys, id, dueMS, payload).Err()
}

func (s *setSender) Close() error { return s.client.Close() }

type setConsumer struct {
	client                *redis.Client
	bell                  *redis.PubSub
	rings                 <-chan *redis.Message
	due, leased, payloads string
	timer                 *time.Timer
	ids, ahead            []any
	last                  any
}

func (c *setConsumer) Next(idle time.Duration) ([]byte, error) {
	ctx := context.Background()
	for end := time.Now().Add(idle); len(c.ids) == 0; {
		now := nowMS()
		keys := []string{c.due, c.leased, c.payloads}
		found, err := leaseScript.Run(ctx, c.client, keys, now, prefetch, now+leaseMS).Slice()
		if err != nil {
			return nil, err
		}
		c.ids, c.ahead = found[0].([]any), found[1].([]any)
		if len(c.ids) > 0 {
			break
		}
		first, err := c.client.ZRangeWithScores(ctx, c.due, 0, 0).Result()
		if err != nil {
			return nil, err
		}
		left := time.Until(end)
		if left <= 0 {
			return nil, nil
		}
		if len(first) > 0 {
			left = min(left, max(0, time.Until(time.UnixMilli(int64(first[0].Score)))))
		}
		c.timer.Reset(left)
		select {
		case <-c.rings:
		case <-c.timer.C:
		}
	}
	payload := c.ahead[0].(string)
	c.last, c.ids, c.ahead = c.ids[0], c.ids[1:], c.ahead[1:]
	return []byte(payload), nil
}

func (c *setConsumer) Ack() error {
	return ackScript.Run(context.Background(), c.client, []string{c.leased, c.payloads}, c.last).Err()
}

func (c *setConsumer) Finish() error { return nil }

func (c *setConsumer) Close() error {
	if err := c.bell.Close(); err != nil {
		return err
	}
	return c.client.Close()
}
