package main

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

const (
	payloadBytes = 100 // bench/load.py
	warmUS       = 0   // the time of a message that counts for nothing
	prefetch     = 100 // messages that a consumer has ahead, where its protocol sends ahead
	ttr          = 120 * time.Second
)

// Queue is bench/peers/peer.py's.
type Queue struct {
	Name       string  `json:"name"`
	Pattern    string  `json:"pattern"`
	DelaysMS   []int64 `json:"delays_ms"`
	IsWaitedOn bool    `json:"is_waited_on"`
}

// Peer is a queue server by a compiled client.
type Peer interface {
	// Make makes a queue that nothing is in.
	Make(queue Queue) error
	// Sender and Consumer are a connection each.
	Sender(queue Queue) (Sender, error)
	Consumer(queue Queue) (Consumer, error)
}

// Sender returns when the server has confirmed a message.
type Sender interface {
	Send(payload []byte) error
	// SendLater sends what is due then, which is delayMS from now: whichever the peer knows.
	SendLater(payload []byte, dueMS, delayMS int64) error
	Close() error
}

// Consumer takes one by one.
type Consumer interface {
	// Next is the next payload; nil = none has come for so long.
	Next(idle time.Duration) ([]byte, error)
	// Ack acks the message that came last; whether it waits for an answer is as the client does it.
	Ack() error
	// Finish takes no more, and returns when all acks have arrived, where that can be known.
	Finish() error
	Close() error
}

var makers = map[string]func(url, variant string) (Peer, error){
	"beanstalkd":       newBeanstalkd,
	"dejaq":            newDejaQ,
	"jetstream":        newJetStream,
	"postgresql":       newPostgreSQL,
	"rabbitmq":         newRabbitMQ,
	"redis_sorted_set": newRedisSortedSet,
	"redis_streams":    newRedisStreams,
}

func nowUS() int64 { return time.Now().UnixMicro() }

func nowMS() int64 { return time.Now().UnixMilli() }

// payloadOf says a time, in µs since 1970; the rest is random.
func payloadOf(atUS int64) []byte {
	payload := make([]byte, 0, payloadBytes+8)
	payload = binary.LittleEndian.AppendUint64(payload, uint64(atUS))
	for len(payload) < payloadBytes {
		payload = binary.LittleEndian.AppendUint64(payload, rand.Uint64())
	}
	return payload[:payloadBytes]
}

func timeOf(payload []byte) int64 { return int64(binary.LittleEndian.Uint64(payload)) }
