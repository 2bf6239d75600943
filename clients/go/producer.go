package dejaqueue

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc/backoff"

	"google.golang.org/grpc"
)

const (
	// window is how many batches are on their way at most: a broker remembers the last 128.
	window = 64

	backoffFirst = 20 * time.Millisecond
	backoffMost  = time.Second
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

type outgoing struct {
	number   uint32
	batch    arrow.RecordBatch
	rows     int
	deadline time.Time
	answer   *reply
	err      *Error
	done     chan struct{}
}

// Producer sends to one topic. Batches that were not answered when a connection broke are sent again
// under their numbers, and are not applied twice.
type Producer struct {
	client  *Client
	command map[string]any
	slots   chan struct{}

	mutex      sync.Mutex // numbers, what waits, and the order of writing
	number     uint32
	waiting    []*outgoing
	stream     *putStream
	connecting bool
	failures   int
	closed     bool
	ended      chan struct{}
}

// putStream is one DoPut; it is written under the producer's mutex.
type putStream struct {
	stream flight.FlightService_DoPutClient
	writer *flight.Writer
	cancel context.CancelFunc
}

// Producer makes a producer of a topic. Close it.
func (c *Client) Producer(topic string) *Producer {
	return c.producer(map[string]any{"topic": topic})
}

func (c *Client) producer(command map[string]any) *Producer {
	command["producer"] = newName()
	return &Producer{
		client: c, command: command, slots: make(chan struct{}, window), ended: make(chan struct{}),
	}
}

// Send sends messages as one batch, and returns when they are durable. Batches of several goroutines
// travel together. If ctx ends first, whether they were sent is unknown.
func (p *Producer) Send(ctx context.Context, messages ...*Message) (*Sent, error) {
	if len(messages) == 0 {
		return &Sent{}, nil
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	sending := p.submit(sendBatch(messages), len(messages))
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

func (p *Producer) submit(batch arrow.RecordBatch, rows int) *outgoing {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.number++ // after the last one comes 1
	if p.number == 0 {
		p.number = 1
	}
	sending := &outgoing{
		number: p.number, batch: batch, rows: rows, done: make(chan struct{}),
		deadline: time.Now().Add(p.client.retryFor),
	}
	p.waiting = append(p.waiting, sending)
	switch {
	case p.closed:
		p.finish(sending, nil, unavailable("the producer is closed"))
	case p.stream != nil:
		p.write(p.stream, sending)
	case !p.connecting:
		p.connecting = true
		go p.connect(0)
	}
	return sending
}

// write is called under the mutex. That it failed is told by the end of the stream.
func (p *Producer) write(to *putStream, sending *outgoing) {
	number := binary.LittleEndian.AppendUint32(nil, sending.number)
	if err := to.writer.WriteWithAppMetadata(sending.batch, number); err != nil && !errors.Is(err, io.EOF) {
		to.cancel()
	}
}

// finish is called under the mutex: a batch has its answer, or will have none.
func (p *Producer) finish(sending *outgoing, answer *reply, err *Error) {
	for place, one := range p.waiting {
		if one == sending {
			p.waiting = append(p.waiting[:place], p.waiting[place+1:]...)
			sending.answer, sending.err = answer, err
			sending.batch.Release()
			close(sending.done)
			<-p.slots
			return
		}
	}
}

func (p *Producer) failAll(err *Error) {
	for len(p.waiting) > 0 {
		p.finish(p.waiting[0], nil, err)
	}
}

// connect opens a stream after a pause and sends what waits, the lowest number first.
func (p *Producer) connect(after time.Duration) {
	select {
	case <-time.After(after):
	case <-p.ended:
	}
	ctx, cancel := context.WithCancel(p.client.context(context.Background()))
	stream, err := p.client.flight.DoPut(ctx)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.connecting = false
	for _, sending := range append([]*outgoing{}, p.waiting...) {
		if time.Now().After(sending.deadline) {
			wrong := sending.err // what a broker answered last
			if wrong == nil {
				wrong = unavailable("no connection to the broker in time; the outcome is unknown")
			}
			p.finish(sending, nil, wrong)
		}
	}
	if err != nil || p.closed || len(p.waiting) == 0 {
		cancel()
		if err != nil {
			p.broke(errorOf(err))
		}
		return
	}
	writer := flight.NewRecordWriter(stream, ipc.WithSchema(sendSchema))
	writer.SetFlightDescriptor(commandDescriptor(p.command))
	opened := &putStream{stream, writer, cancel}
	p.stream = opened
	go p.read(opened)
	for _, sending := range p.waiting {
		p.write(opened, sending)
	}
}

// broke is called under the mutex: there is no stream. What waits is sent again, or fails.
func (p *Producer) broke(wrong *Error) {
	if !wrong.CanRetry() {
		p.failAll(wrong)
		return
	}
	if len(p.waiting) == 0 || p.connecting {
		return
	}
	p.connecting = true
	after := max(pause(p.failures), wrong.RetryAfter())
	p.failures++
	go p.connect(after)
}

func (p *Producer) drop(from *putStream, wrong *Error) {
	if p.stream != from {
		return
	}
	p.stream = nil
	from.cancel()
	p.broke(wrong)
}

// read hands out replies until the stream ends.
func (p *Producer) read(from *putStream) {
	for {
		result, err := from.stream.Recv()
		var frame any
		if err == nil {
			frame, err = decode(result.AppMetadata)
		} else if err == io.EOF {
			err = unavailable("the broker ended the stream")
		}
		p.mutex.Lock()
		if err != nil {
			p.drop(from, errorOf(err))
			p.mutex.Unlock()
			return
		}
		if answer, is := frame.(*reply); is {
			p.answered(from, answer)
		}
		p.mutex.Unlock()
	}
}

// answered is called under the mutex.
func (p *Producer) answered(from *putStream, answer *reply) {
	for _, sending := range p.waiting {
		if sending.number != answer.number {
			continue
		}
		switch {
		case answer.err == nil:
			p.failures = 0
			p.finish(sending, answer, nil)
		case answer.err.CanRetry() && time.Now().Before(sending.deadline):
			sending.err = answer.err
			p.drop(from, answer.err) // it is sent again, in its place
		default:
			p.finish(sending, nil, answer.err)
		}
		return
	}
}

// Close waits for what is on its way, at most as long as it is retried.
func (p *Producer) Close() {
	p.mutex.Lock()
	waiting := append([]*outgoing{}, p.waiting...)
	p.mutex.Unlock()
	for _, sending := range waiting {
		<-sending.done
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	close(p.ended)
	p.failAll(unavailable("the producer is closed"))
	if p.stream != nil {
		_ = p.stream.writer.Close()
		_ = p.stream.stream.CloseSend()
	}
}
