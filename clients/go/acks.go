package dejaqueue

// Acks that nobody waits for: gathered while others are on their way, and sent again by (id,
// attempt) when the connection broke before their answer.

import (
	"context"
	"fmt"
	"time"
)

const (
	ackRowsMost = 10_000 // of one SETTLE
	// acksEarly is how many have a SETTLE go although another is on its way, of acksOnWayMost at most.
	acksEarly     = 256
	acksOnWayMost = 8
	// acksMost is how many acks may wait for their answer; then AckAsync waits.
	acksMost = 20_000
	// ackMarginMS is how near to the end of a lease it may have ended.
	ackMarginMS = 1000
)

// ackRow is a message that is acked.
type ackRow struct {
	handed
	endMS int64 // of its lease
}

// ackBatch is acks that have one answer.
type ackBatch struct {
	rows  []ackRow
	again bool      // it was sent before: what came of that is not known
	until time.Time // it is sent again when the broker asks for it; the zero time = not yet sent
}

// ackPipe is what AckAsync was told; under the consumer's mutex.
type ackPipe struct {
	gathered []ackRow
	again    []ackBatch
	onWay    map[uint32]ackBatch
	count    int    // of messages that have no answer
	waiting  int    // goroutines that wait for answers
	err      *Error // the first one that was not told
}

// AckAsync acks messages and does not wait for the broker to make that durable. The acks are sent at
// once, or as soon as those before them are answered. It waits only while 20,000 are not answered.
//
// An error is that of earlier acks, the first one since an error was told, and the messages given
// are acked nevertheless; but not if it is ctx's, or if the consumer is closed or refused. Flush and
// Close wait for all answers and tell what AckAsync has not told. Refused: a message had lost its
// lease, and may come again. If the connection breaks before the answer, the ack is sent again.
// Unavailable: the lease may have ended meanwhile, so that whether the message is acked is unknown.
//
// An ack is durable when Flush or Close has returned and none of them told an error. A program that
// ends before that may get the messages again.
func (c *Consumer) AckAsync(ctx context.Context, messages ...*Message) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	err := c.awaitAcks(ctx, func() bool { return c.acks.count < acksMost })
	if err != nil {
		return err
	}
	if c.closing || c.refused != nil {
		return unavailable("the consumer is closed")
	}
	for _, message := range messages {
		row := ackRow{handed: handed{message.ID, message.Attempts}}
		if message.lease != nil {
			row.endMS = message.lease.endMS
		}
		c.acks.gathered = append(c.acks.gathered, row)
	}
	c.acks.count += len(messages)
	c.sendAcks()
	c.leave(messages)
	return c.toldAcks()
}

// Flush waits until all acks of AckAsync are answered; the first error that was not told.
func (c *Consumer) Flush(ctx context.Context) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := c.awaitAcks(ctx, func() bool { return c.acks.count == 0 }); err != nil {
		return err
	}
	return c.toldAcks()
}

// toldAcks is called under the mutex.
func (c *Consumer) toldAcks() error {
	wrong := c.acks.err
	c.acks.err = nil
	if wrong == nil {
		return nil
	}
	return wrong
}

// awaitAcks is called under the mutex, and lets go of it while it waits. If nothing is answered any
// more, it ends, too, and there is an error to be told.
func (c *Consumer) awaitAcks(ctx context.Context, enough func() bool) error {
	for !enough() {
		if c.over {
			c.acks.failed(unavailable("the consumer ended before the answer to an ack: whether it was carried out is unknown"))
			c.acks.count, c.acks.gathered, c.acks.again = 0, nil, nil
			return nil
		}
		c.acks.waiting++
		wake := c.wake
		c.mutex.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
		}
		c.mutex.Lock()
		c.acks.waiting--
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func (p *ackPipe) failed(wrong *Error) {
	if p.err == nil {
		p.err = wrong
	}
}

// sendAcks is called under the mutex: what was gathered goes, if its turn has come.
func (c *Consumer) sendAcks() {
	for c.stream != nil && len(c.acks.onWay) < acksOnWayMost {
		pipe := &c.acks
		var next ackBatch
		switch {
		case len(pipe.again) > 0:
			next, pipe.again = pipe.again[0], pipe.again[1:]
		case len(pipe.gathered) > 0 && (len(pipe.onWay) == 0 || len(pipe.gathered) >= acksEarly):
			rows := min(len(pipe.gathered), ackRowsMost)
			next.rows, pipe.gathered = pipe.gathered[:rows:rows], pipe.gathered[rows:]
		default:
			return
		}
		if next.until.IsZero() {
			next.until = time.Now().Add(c.client.retryFor)
		}
		asked := settle{op: opAck, number: c.nextNumber(), leaseID: -1}
		for _, one := range next.rows {
			asked.ids = append(asked.ids, one.id)
			asked.attempts = append(asked.attempts, one.attempt)
		}
		pipe.onWay[asked.number] = next
		c.say(encodeSettle(asked))
	}
}

// acked is called under the mutex: acks have their answer; false if it answers none.
func (c *Consumer) acked(answer *reply) bool {
	batch, is := c.acks.onWay[answer.number]
	if !is {
		return false
	}
	delete(c.acks.onWay, answer.number)
	switch {
	case answer.err == nil:
		c.judgeAcks(batch, answer)
	case answer.err.CanRetry() && time.Now().Before(batch.until):
		batch.again = true
		time.AfterFunc(max(pause(2), answer.err.RetryAfter()), func() {
			c.mutex.Lock()
			defer c.mutex.Unlock()
			c.acks.again = append(c.acks.again, batch)
			c.sendAcks()
		})
		return true
	default:
		c.acks.failed(answer.err)
	}
	c.acks.count -= len(batch.rows)
	c.sendAcks()
	if c.acks.waiting > 0 {
		c.changed()
	}
	return true
}

// judgeAcks is called under the mutex.
func (c *Consumer) judgeAcks(batch ackBatch, answer *reply) {
	brokerMS := c.brokerMS()
	for row, one := range batch.rows {
		status := answer.statusOf(row, len(batch.rows))
		switch {
		case status == OK:
		case !batch.again:
			c.acks.failed(&Error{
				Number: NumberRefused, Name: "Refused",
				Text: fmt.Sprintf("the acked message %d had lost its lease (%s)", one.id, status),
			})
		case one.endMS <= brokerMS+ackMarginMS:
			c.acks.failed(unavailable(
				"the connection broke before the answer to the ack of message %d, and when it was sent again its "+
					"lease was over (%s): whether the first one was carried out is unknown", one.id, status,
			))
			// Otherwise the lease cannot have ended by itself: the first one was carried out.
		}
	}
}

// brokerMS is called under the mutex: the broker's clock, before it is measured on this stream by what
// was measured on an earlier one.
func (c *Consumer) brokerMS() int64 {
	now := nowUS()
	if _, uncertainty := c.offset.at(now); uncertainty == unknown {
		return (now + c.formerOffset) / 1000
	}
	return c.offset.brokerMS(now)
}

// reachedMS is called under the mutex: what the broker's clock has reached. Before it is measured on
// this stream, that is what it stood at in a delivery, or what the broker before had reached, less
// what the clocks of two may be apart.
func (c *Consumer) reachedMS() int64 {
	now := nowUS()
	if _, uncertainty := c.offset.at(now); uncertainty == unknown {
		return max(now+c.formerOffset-brokersApartUS, c.offset.reached) / 1000
	}
	return c.offset.brokerMS(now)
}

// acksBroke is called under the mutex: what was not answered is sent again by the next stream.
func (c *Consumer) acksBroke() {
	for number, batch := range c.acks.onWay {
		delete(c.acks.onWay, number)
		batch.again = true
		c.acks.again = append(c.acks.again, batch)
	}
}

// Close ends the consumer, when the acks of AckAsync are answered; it waits for that as long as a
// batch is retried. What it has and did not settle goes back to the broker at once; what is not due yet
// comes when it is. The error is that of an ack which was not told; twice is fine.
func (c *Consumer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.client.retryFor)
	defer cancel()
	c.mutex.Lock()
	c.closing = true
	c.changed()
	err := c.awaitAcks(ctx, func() bool { return c.acks.count == 0 })
	if err != nil { // the context's
		c.acks.failed(unavailable("no answer to an ack in time: whether it was carried out is unknown"))
	}
	open, first := c.stream, !c.closed
	if first {
		c.closed = true
		c.giveBackEarlier()
		c.say(encodeClose())
		c.changed()
	}
	told := c.toldAcks()
	c.mutex.Unlock()
	taken := false // what it had was taken back
	if open != nil {
		select {
		case <-c.done:
			c.mutex.Lock()
			taken = c.whole
			c.mutex.Unlock()
		case <-time.After(5 * time.Second):
		}
	}
	if first && !taken {
		c.giveBackElsewhere()
	}
	return told
}
