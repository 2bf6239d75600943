package dejaqueue

// A link is a producer's batches over as many connections as it takes: each has one number for ever,
// and what was not answered when a connection broke is sent again under it, in order.

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

const (
	// window is how many batches are on their way at most: a broker remembers the last 128.
	window = 64

	// Single messages are gathered while a frame of others is on its way, up to these bounds.
	gatheredRowsMost  = 1000
	gatheredBytesMost = 1 << 20
	// gatheredEarly is how many have one go although another is on its way, of framesMost at most.
	gatheredEarly = 256
	framesMost    = 8
	// singlesMost is how many single messages wait at most; then Send waits to begin.
	singlesMost = 4096
)

// channel is a connection of a link. All but the flushes is called under the link's mutex.
type channel interface {
	// write sends a batch; false if this channel cannot carry it. That it failed is told by the
	// end of the channel.
	write(sending *outgoing) bool
	flush()
	flushSoon()
	// drop ends it now, finish when what was sent is answered.
	drop()
	finish()
	// abort breaks it, also while somebody writes; its end is told as ever, and why it is this.
	abort(wrong *Error)
	isLane() bool
	isOver() bool
	peer() *broker
}

// outgoing is a batch, or single messages that go together.
type outgoing struct {
	number   uint32
	messages []*Message // single ones
	bytes    int
	content  laneRows          // of the messages, once it went by a lane
	batch    arrow.RecordBatch // once it went by Flight
	rows     int
	deadline time.Time
	answer   *reply
	err      *Error
	alone    []*outgoing // each for itself, where it could not be told whose fault it was
	done     chan struct{}
}

func (o *outgoing) recordBatch() arrow.RecordBatch {
	if o.batch == nil {
		o.batch = sendBatch(o.messages)
	}
	return o.batch
}

type link struct {
	client  *Client
	command map[string]any
	topic   string
	name    string // the producer's
	single  bool   // sends single messages: by the lane, where there is one
	slots   chan struct{}

	mutex      sync.Mutex // numbers, what waits, and the order of writing
	number     uint32
	open       *outgoing   // single messages that are gathered
	queue      []*outgoing // gathered, and not sent yet
	waiting    []*outgoing // sent, or to be sent, under a number
	channel    channel
	connecting bool
	failures   int
	silent     *Error    // a broker gave no sign of life, and nothing was answered since
	laneAfter  time.Time // by Flight until then
	signs      signs
	gone       chan struct{} // closed when the channel is not used any more
	closed     bool
	ended      chan struct{}
}

// link makes a link of its own name: a name belongs to one sequence of batches.
func (c *Client) link(command map[string]any, single bool) *link {
	named := map[string]any{"producer": newName()}
	for field, value := range command {
		named[field] = value
	}
	topic, _ := command["topic"].(string)
	slots := window
	if single {
		slots = singlesMost
	}
	return &link{
		client: c, command: named, topic: topic, name: named["producer"].(string), single: single,
		slots: make(chan struct{}, slots), ended: make(chan struct{}),
	}
}

// enter waits until there is room for one more.
func (p *link) enter(ctx context.Context) error {
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// submit sends a batch, for which there is room.
func (p *link) submit(batch arrow.RecordBatch, rows int) *outgoing {
	sending := &outgoing{
		batch: batch, rows: rows, done: make(chan struct{}), deadline: time.Now().Add(p.client.retryFor),
	}
	p.mutex.Lock()
	p.start(sending)
	channel := p.channel
	p.mutex.Unlock()
	if channel != nil {
		channel.flush()
	}
	return sending
}

// gather sends a message, for which there is room, with whatever else is sent meanwhile; its place.
func (p *link) gather(message *Message, bytes int) (*outgoing, int) {
	p.mutex.Lock()
	open := p.open
	if open != nil && (open.rows >= gatheredRowsMost || open.bytes+bytes > gatheredBytesMost) {
		p.queue, open = append(p.queue, open), nil
	}
	if open == nil {
		open = &outgoing{done: make(chan struct{}), deadline: time.Now().Add(p.client.retryFor)}
		p.open = open
	}
	place := open.rows
	open.messages = append(open.messages, message)
	open.rows++
	open.bytes += bytes
	p.pump()
	channel := p.channel
	p.mutex.Unlock()
	if channel != nil {
		channel.flush()
	}
	return open, place
}

// pump is called under the mutex: what was gathered goes, if its turn has come.
func (p *link) pump() {
	for len(p.waiting) < framesMost {
		switch {
		case len(p.queue) > 0:
			next := p.queue[0]
			p.queue = p.queue[1:]
			p.start(next)
		case p.open != nil && (len(p.waiting) == 0 || p.open.rows >= gatheredEarly || p.closed):
			next := p.open
			p.open = nil
			p.start(next)
		default:
			return
		}
	}
}

// start is called under the mutex: the batch has a number from here on.
func (p *link) start(sending *outgoing) {
	p.number++ // after the last one comes 1
	if p.number == 0 {
		p.number = 1
	}
	sending.number = p.number
	if p.channel != nil && len(p.waiting) == 0 && !p.channel.isLane() && p.mayTryLane() {
		p.toLane() // Flight has nothing on its way
	}
	p.waiting = append(p.waiting, sending)
	p.signs.waits()
	if p.channel != nil && !p.channel.isLane() {
		p.client.flights.use(p)
	}
	switch {
	case p.closed:
		p.finish(sending, nil, unavailable("the producer is closed"))
	case p.channel != nil:
		p.write(sending)
	case !p.connecting:
		p.connecting = true
		go p.connect(0)
	}
}

// toLane is called under the mutex: goes back to the lane if it is there by now.
func (p *link) toLane() {
	at := p.channel.peer()
	if at.lanes.open() == nil {
		p.laneAfter = time.Now().Add(time.Second)
		p.client.seekLane(at)
		return
	}
	p.channel.finish()
	p.detach()
}

// mayTryLane is called under the mutex.
func (p *link) mayTryLane() bool {
	may := p.single && !p.client.flightOnly && !time.Now().Before(p.laneAfter)
	return may && !p.client.isPassedOn(p.topic)
}

// byFlight is called under the mutex: what was sent and is not answered goes by Flight, for a while.
func (p *link) byFlight(from channel, wrong *Error) {
	p.laneAfter = time.Now().Add(laneRetry)
	p.drop(from, wrong)
}

// write is called under the mutex.
func (p *link) write(sending *outgoing) {
	if to := p.channel; !to.write(sending) {
		p.byFlight(to, unavailable("the lane takes no message with fields"))
	}
}

// finish is called under the mutex: a batch has its answer, or will have none.
func (p *link) finish(sending *outgoing, answer *reply, err *Error) {
	if !p.forget(sending) {
		return
	}
	sending.answer, sending.err = answer, err
	if sending.batch != nil {
		sending.batch.Release()
	}
	close(sending.done)
	for range max(1, len(sending.messages)) {
		<-p.slots
	}
}

// forget is called under the mutex; false if it does not wait any more.
func (p *link) forget(sending *outgoing) bool {
	for place, one := range p.waiting {
		if one == sending {
			p.waiting = append(p.waiting[:place], p.waiting[place+1:]...)
			return true
		}
	}
	return false
}

// split is called under the mutex: the batch was refused, and changed nothing. Each of its messages
// is sent alone, so that none is refused for another's fault.
func (p *link) split(sending *outgoing) {
	if !p.forget(sending) {
		return
	}
	for _, message := range sending.messages {
		sending.alone = append(sending.alone, &outgoing{
			messages: []*Message{message}, rows: 1, done: make(chan struct{}), deadline: sending.deadline,
		})
	}
	p.queue = append(append([]*outgoing{}, sending.alone...), p.queue...)
	if sending.batch != nil {
		sending.batch.Release()
	}
	close(sending.done)
}

func (p *link) failAll(err *Error) {
	for len(p.waiting) > 0 {
		p.finish(p.waiting[0], nil, err)
	}
}

// connect opens a channel after a pause and sends what waits, the lowest number first.
func (p *link) connect(after time.Duration) {
	if after > 0 {
		select {
		case <-time.After(after):
		case <-p.ended:
		}
	}
	p.mutex.Lock()
	tryLane := p.mayTryLane()
	p.mutex.Unlock()
	opened, err := p.dial(tryLane)
	p.mutex.Lock()
	p.connecting = false
	if tryLane && err == nil && !opened.isLane() {
		p.laneAfter = time.Now().Add(time.Second)
	}
	p.opened(opened, err)
	p.pump()
	channel := p.channel
	p.mutex.Unlock()
	if channel != nil {
		channel.flush()
	}
}

// dial opens a lane if it may, or else a stream of Flight.
func (p *link) dial(tryLane bool) (channel, error) {
	asked, follows := p.client.route(p.topic)
	if tryLane {
		if lane := p.client.sharedLane(asked); lane != nil {
			return lane.channel(p), nil
		}
	}
	ctx, cancel := context.WithCancelCause(p.client.context(context.Background(), follows))
	stream, err := asked.flight.DoPut(ctx)
	if err != nil {
		cancel(nil)
		p.client.learn(p.topic, asked, errorOf(err))
		return nil, err
	}
	return &putStream{broker: asked, stream: stream, ctx: ctx, cancel: cancel}, nil
}

// expire is called under the mutex: what was tried for as long as it may be fails.
func (p *link) expire() {
	for _, sending := range append([]*outgoing{}, p.waiting...) {
		if !time.Now().After(sending.deadline) {
			continue
		}
		wrong := sending.err // what a broker answered last
		if wrong == nil {
			wrong = p.silent
		}
		if wrong == nil {
			wrong = unavailable("no connection to the broker in time; the outcome is unknown")
		}
		p.finish(sending, nil, wrong)
	}
}

// opened is called under the mutex.
func (p *link) opened(opened channel, err error) {
	p.expire()
	if err != nil {
		p.broke(errorOf(err))
		return
	}
	if p.closed || len(p.waiting) == 0 {
		opened.drop()
		return
	}
	if stream, is := opened.(*putStream); is {
		stream.writer = flight.NewRecordWriter(stream.stream, ipc.WithSchema(sendSchema))
		stream.writer.SetFlightDescriptor(commandDescriptor(p.command))
		go p.read(stream)
	}
	p.channel = opened
	if !opened.isLane() {
		p.client.flights.use(p)
	}
	p.gone = make(chan struct{})
	p.signs.hears(true)
	go p.attend(opened, p.gone)
	if opened.isOver() { // before the link could be told
		p.drop(opened, unavailable("the lane broke"))
		return
	}
	for _, sending := range append([]*outgoing{}, p.waiting...) {
		if p.channel == opened {
			p.write(sending)
		}
	}
}

// rest ends the stream of Flight, if nothing is on its way; the next batch opens another one.
func (p *link) rest() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	switch {
	case p.channel == nil || p.channel.isLane():
	case len(p.waiting) > 0:
		p.client.flights.keep(p)
	default:
		p.channel.finish()
		p.detach()
	}
}

// uses tells whether a channel is the one that batches go by.
func (p *link) uses(channel channel) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.channel == channel
}

// detach is called under the mutex: the channel is not used any more.
func (p *link) detach() {
	if p.channel != nil && !p.channel.isLane() {
		p.client.flights.leave(p)
	}
	p.channel = nil
	if p.gone != nil {
		close(p.gone)
		p.gone = nil
	}
}

// attend breaks a channel whose broker does not answer, not even when it is asked for a sign of life.
func (p *link) attend(channel channel, gone <-chan struct{}) {
	if p.client.attend(channel.peer(), &p.signs, gone) {
		wrong := channel.peer().silent()
		p.client.learn(p.topic, channel.peer(), wrong)
		channel.abort(wrong)
	}
}

// broke is called under the mutex: there is no channel. What waits is sent again, or fails.
func (p *link) broke(wrong *Error) {
	if !wrong.CanRetry() {
		p.failAll(wrong)
		return
	}
	if wrong.silent {
		p.silent = wrong
		p.expire() // rather than after one more question
	}
	if len(p.waiting) == 0 || p.connecting {
		return
	}
	p.connecting = true
	after := max(pause(p.failures), wrong.RetryAfter())
	p.failures++
	go p.connect(after)
}

// drop is called under the mutex.
func (p *link) drop(from channel, wrong *Error) {
	if p.channel != from {
		return
	}
	p.detach()
	from.drop()
	p.broke(wrong)
}

// lost is told by a channel that has ended.
func (p *link) lost(from channel, wrong *Error) {
	p.mutex.Lock()
	p.drop(from, wrong)
	p.pump()
	p.mutex.Unlock()
}

// replied is told by a channel that got a reply.
func (p *link) replied(from channel, number uint32, answer *reply) {
	p.mutex.Lock()
	p.answered(from, number, answer)
	p.signs.hears(len(p.waiting) > 0)
	p.pump()
	channel := p.channel
	p.mutex.Unlock()
	if channel != nil {
		channel.flushSoon()
	}
}

// answered is called under the mutex.
func (p *link) answered(from channel, number uint32, answer *reply) {
	for _, sending := range p.waiting {
		if sending.number != number {
			continue
		}
		wrong := answer.err
		switch {
		case wrong == nil:
			p.failures, p.silent = 0, nil
			p.finish(sending, answer, nil)
		case wrong.Number == NumberElsewhere && from.isLane() && !p.client.learn(p.topic, from.peer(), wrong):
			p.byFlight(from, wrong) // by which brokers pass it on
		case sending.rows > 1 && len(sending.messages) > 1 && isOfOne(wrong):
			p.split(sending)
		case wrong.CanRetry() && time.Now().Before(sending.deadline):
			sending.err = wrong
			p.client.learn(p.topic, from.peer(), wrong) // it may be stopping, and not end the stream yet
			p.drop(from, wrong)                         // it is sent again, in its place
		default:
			p.finish(sending, nil, wrong)
		}
		return
	}
}

// isOfOne tells that a batch may be refused for one of its messages, and that none was taken.
func isOfOne(wrong *Error) bool {
	return wrong.Number == NumberBadRequest || wrong.Number == NumberResourceExhausted
}

// read hands out replies of Flight until the stream ends.
func (p *link) read(from *putStream) {
	defer from.cancel(nil)
	for {
		result, err := from.stream.Recv()
		var frame any
		if err == nil {
			frame, err = decode(result.AppMetadata)
		} else if err == io.EOF {
			err = unavailable("the broker ended the stream")
		}
		if err != nil && !p.uses(from) {
			return
		}
		if err != nil {
			wrong := because(from.ctx, err)
			p.client.learn(p.topic, from.broker, wrong)
			p.lost(from, wrong)
			return
		}
		if answer, is := frame.(*reply); is {
			p.replied(from, answer.number, answer)
		}
	}
}

// close waits for what is on its way, at most as long as it is retried.
func (p *link) close() {
	for {
		p.mutex.Lock()
		var one *outgoing
		switch {
		case len(p.waiting) > 0:
			one = p.waiting[0]
		case len(p.queue) > 0:
			one = p.queue[0]
		case p.open != nil:
			one = p.open
		}
		if one == nil {
			break // with the mutex: nothing is sent between this and the end
		}
		p.mutex.Unlock()
		<-one.done
	}
	defer p.mutex.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	close(p.ended)
	if p.channel != nil {
		p.channel.finish()
		p.detach()
	}
}

// putStream is one DoPut; it is written under the link's mutex.
type putStream struct {
	broker *broker
	stream flight.FlightService_DoPutClient
	writer *flight.Writer
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (s *putStream) write(sending *outgoing) bool {
	number := binary.LittleEndian.AppendUint32(nil, sending.number)
	err := s.writer.WriteWithAppMetadata(sending.recordBatch(), number)
	if err != nil && !errors.Is(err, io.EOF) {
		s.cancel(nil)
	}
	return true
}

func (s *putStream) flush()             {}
func (s *putStream) flushSoon()         {}
func (s *putStream) drop()              { s.cancel(nil) }
func (s *putStream) abort(wrong *Error) { s.cancel(wrong) }
func (s *putStream) isLane() bool       { return false }
func (s *putStream) isOver() bool       { return false }
func (s *putStream) peer() *broker      { return s.broker }

func (s *putStream) finish() {
	_ = s.writer.Close()
	_ = s.stream.CloseSend()
}
