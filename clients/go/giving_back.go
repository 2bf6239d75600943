package dejaqueue

// What a consumer that closes gives back, where the end of its stream does not do that: what came by
// an earlier stream, and all of it if the topic is going to another broker just then.

import (
	"context"
	"time"
)

// giveBackMost is how long Close waits for that; otherwise leases end at their time.
const giveBackMost = time.Second

// giveBackStepMS is how much later than it is due a message may come again: what is due within so
// much of each other goes back together.
const giveBackStepMS = 50

// left is called under the mutex: what gives back the messages under such leases. Those that nobody
// looked at are not due before they were.
func (c *Consumer) left(under func(*lease) bool) []settle {
	held := map[int64]*settle{} // by when they are due, in steps
	atHand := settle{op: opNack, leaseID: -1}
	reachedMS := c.reachedMS()
	for _, one := range c.held {
		if under(one.message.lease) {
			// One more for what is cut off, and one for what is not known of the broker's clock.
			delayMS := max(one.message.Due.UnixMilli()-reachedMS+2, 0)
			step := (delayMS + giveBackStepMS - 1) / giveBackStepMS
			asked := held[step]
			if asked == nil {
				asked = &settle{op: opNack, leaseID: -1, fate: fateRelease}
				held[step] = asked
			}
			asked.ids = append(asked.ids, one.message.ID)
			asked.attempts = append(asked.attempts, one.message.Attempts)
			asked.argumentMS = max(asked.argumentMS, delayMS)
		}
	}
	for one, lease := range c.atHand {
		if under(lease) {
			atHand.ids = append(atHand.ids, one.id)
			atHand.attempts = append(atHand.attempts, one.attempt)
		}
	}
	var found []settle
	for _, asked := range held {
		found = append(found, *asked)
	}
	if len(atHand.ids) > 0 {
		found = append(found, atHand)
	}
	return found
}

// giveBackEarlier is called under the mutex, before the CLOSE, which is about this stream's leases.
func (c *Consumer) giveBackEarlier() {
	for _, asked := range c.left(func(one *lease) bool { return one.generation != c.generation }) {
		c.say(encodeSettle(asked))
	}
}

// giveBackElsewhere gives all back by calls of their own. Nobody is told if that fails.
func (c *Consumer) giveBackElsewhere() {
	ctx, cancel := context.WithTimeout(context.Background(), giveBackMost)
	defer cancel()
	c.mutex.Lock()
	found := c.left(func(*lease) bool { return true })
	c.held = nil
	clear(c.atHand)
	c.mutex.Unlock()
	for _, asked := range found {
		rows := make([]*Message, len(asked.ids))
		for row, id := range asked.ids {
			rows[row] = &Message{ID: id, Attempts: asked.attempts[row]}
		}
		batch := settleBatch(rows)
		command := map[string]any{
			"topic": c.topic, "op": "nack", "argument_ms": asked.argumentMS, "released": asked.fate == fateRelease,
		}
		_, _ = c.client.writeOnce(ctx, c.topic, command, batch)
		batch.Release()
	}
}
