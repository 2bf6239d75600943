package dejaqueue

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	backoffFirst = 20 * time.Millisecond
	backoffMost  = time.Second

	// laneBytesMost is the size of a message from which on Flight is as cheap.
	laneBytesMost = 64 << 10
)

var connectParams = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// pause is how long to wait before the next attempt: doubling, with jitter of a half.
func pause(failures int) time.Duration {
	full := backoffMost
	if failures < 6 {
		full = min(backoffFirst<<failures, backoffMost)
	}
	return full/2 + time.Duration(mathrand.Int64N(int64(full/2)))
}

// newName is a producer's name: an earlier run's would get that run's answers.
func newName() string {
	name := make([]byte, 16)
	_, _ = rand.Read(name) // it does not fail
	return hex.EncodeToString(name)
}

// Sent is the answer to a batch: an id and a status for each message, in order.
type Sent struct {
	IDs      []int64
	Statuses []Status
}

// Producer sends to one topic. What was not answered when a connection broke is sent again under its
// number, and is not applied twice. Single messages go by the broker's express lane where it has
// one, all else by Flight.
type Producer struct {
	batches *link
	singles *link // nil: everything goes as batches
}

// Producer makes a producer of a topic. Close it.
func (c *Client) Producer(topic string) *Producer {
	made := c.producer(map[string]any{"topic": topic})
	if !c.flightOnly && topic != "" {
		made.singles = c.link(map[string]any{"topic": topic}, true)
	}
	return made
}

func (c *Client) producer(command map[string]any) *Producer {
	return &Producer{batches: c.link(command, false)}
}

// Send sends messages as one batch, and returns when they are durable. Single messages of several
// goroutines travel together: while some are on their way, the next ones are gathered. If ctx ends
// first, whether they were sent is unknown.
func (p *Producer) Send(ctx context.Context, messages ...*Message) (*Sent, error) {
	if len(messages) == 0 {
		return &Sent{}, nil
	}
	if len(messages) == 1 && p.singles != nil {
		if bytes, valid := laneBytes(messages[0]); valid && bytes <= laneBytesMost {
			return p.sendOne(ctx, messages[0], bytes)
		}
	}
	if err := p.batches.enter(ctx); err != nil {
		return nil, err
	}
	sending := p.batches.submit(sendBatch(messages), len(messages))
	select {
	case <-sending.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if sending.err != nil {
		return nil, sending.err
	}
	return &Sent{IDs: sending.answer.ids, Statuses: sending.answer.statusesOf(len(messages))}, nil
}

func (p *Producer) sendOne(ctx context.Context, message *Message, bytes int) (*Sent, error) {
	if err := p.singles.enter(ctx); err != nil {
		return nil, err
	}
	sending, place := p.singles.gather(copyOf(message), bytes)
	for {
		select {
		case <-sending.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if sending.alone == nil {
			break
		}
		sending, place = sending.alone[place], 0
	}
	if sending.err != nil {
		told := *sending.err // several share it
		return nil, &told
	}
	answer := sending.answer
	sent := &Sent{Statuses: []Status{answer.statusOf(place, sending.rows)}}
	if place < len(answer.ids) {
		sent.IDs = []int64{answer.ids[place]}
	}
	return sent, nil
}

// copyOf is the message as it is now: whoever sends it may change it when Send has returned because
// its context ended, while it still is on its way.
func copyOf(message *Message) *Message {
	copied := *message
	copied.Payload = bytes.Clone(message.Payload)
	copied.Tags = slices.Clone(message.Tags)
	copied.Headers = maps.Clone(message.Headers)
	if message.Priority != nil {
		priority := *message.Priority
		copied.Priority = &priority
	}
	return &copied
}

// Close waits for what is on its way, at most as long as it is retried.
func (p *Producer) Close() {
	p.batches.close()
	if p.singles != nil {
		p.singles.close()
	}
}
