package dejaqueue

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// creditParts is in how many parts credit is given where there is enough at hand.
const creditParts = 4

// ConsumeOptions say who consumes, and how.
type ConsumeOptions struct {
	Consumer string        // a name for logs and stats
	Lease    time.Duration // of its deliveries; 0 = the topic's
	// Credit is how many messages may be at hand that are not settled; 0 = 1,000. Take what can be
	// worked off in one lease.
	Credit                    int
	TagsAny, TagsAll, TagsNot []string
}

// Consumer receives messages of one topic, each when it is due by the broker's clock, never before, by
// a lane of its own where the broker has them, or else by Flight.
// When the connection breaks it opens another one; what is at hand stays, until its lease ends.
type Consumer struct {
	client  *Client
	topic   string
	command map[string]any
	credit  int

	mutex    sync.Mutex
	wake     chan struct{} // closed and made again when something has changed
	held     holding
	arrivals int
	atHand   map[handed]*lease // handed over and not settled
	offset   clockOffset

	formerOffset int64 // an earlier stream's, until there is one
	owed         int   // credit that is not given yet
	stream       consumeStream
	signs        signs     // of the stream's broker, which answers pings
	laneAfter    time.Time // by Flight until then
	generation   int
	number       uint32
	waiting      map[uint32]chan *reply
	acks         ackPipe
	pings        map[uint32]int64
	ended        *Error // why the last stream ended
	refused      *Error // the broker refused the stream: nothing comes any more
	closing      bool   // it is being closed: nothing is handed over any more
	closed       bool
	whole        bool // the last stream ended as a CLOSE has it end
	over         bool // no stream is opened any more
	done         chan struct{}
}

type handed struct {
	id      int64
	attempt uint16
}

type heldMessage struct {
	message   *Message
	releaseUS int64
	arrival   int
}

type holding []heldMessage

func (h holding) Len() int { return len(h) }
func (h holding) Less(a, b int) bool {
	if h[a].releaseUS != h[b].releaseUS {
		return h[a].releaseUS < h[b].releaseUS
	}
	return h[a].arrival < h[b].arrival
}
func (h holding) Swap(a, b int) { h[a], h[b] = h[b], h[a] }
func (h *holding) Push(one any) { *h = append(*h, one.(heldMessage)) }
func (h *holding) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// Consume begins to consume a topic. Close the consumer.
func (c *Client) Consume(topic string, options ConsumeOptions) *Consumer {
	command := map[string]any{"topic": topic, "consumer": options.Consumer}
	if options.Lease != 0 {
		command["lease_ms"] = options.Lease.Milliseconds()
	}
	for name, tags := range map[string][]string{
		"tags_any": options.TagsAny, "tags_all": options.TagsAll, "tags_none": options.TagsNot,
	} {
		if len(tags) > 0 {
			command[name] = tags
		}
	}
	credit := options.Credit
	if credit <= 0 {
		credit = 1000
	}
	consumer := &Consumer{
		client: c, topic: topic, command: command, credit: credit, wake: make(chan struct{}),
		atHand: map[handed]*lease{}, waiting: map[uint32]chan *reply{}, pings: map[uint32]int64{},
		acks: ackPipe{onWay: map[uint32]ackBatch{}}, done: make(chan struct{}),
	}
	go consumer.run()
	return consumer
}

// changed is called under the mutex.
func (c *Consumer) changed() {
	close(c.wake)
	c.wake = make(chan struct{})
}

// run opens streams until the consumer is closed or refused.
func (c *Consumer) run() {
	defer close(c.done)
	for failures := 0; ; failures++ {
		wrong, delivered := c.serve()
		c.mutex.Lock()
		c.stream, c.ended = nil, wrong
		for number, waiting := range c.waiting {
			delete(c.waiting, number)
			close(waiting)
		}
		c.acksBroke()
		if !c.closed && !wrong.CanRetry() {
			c.refused = wrong
		}
		over := c.closed || c.refused != nil
		c.over = over
		c.changed()
		c.mutex.Unlock()
		if over {
			return
		}
		if delivered {
			failures = 0
		}
		time.Sleep(max(pause(failures), min(wrong.RetryAfter(), time.Second)))
	}
}

// serve is one stream, from its opening to its end; why it ended, and whether anything came. It goes
// by a lane where there is one.
func (c *Consumer) serve() (*Error, bool) {
	asked, follows := c.client.route(c.topic)
	c.mutex.Lock()
	tryLane := !time.Now().Before(c.laneAfter) && !c.client.isPassedOn(c.topic)
	c.mutex.Unlock()
	if tryLane {
		if connection := c.client.connectLane(asked); connection != nil {
			return c.serveLane(connection)
		}
	}
	return c.serveFlight(asked, follows)
}

// begin has a stream carry what is said from here on; false if the consumer is closed.
func (c *Consumer) begin(stream consumeStream) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.generation++
	c.signs.hears(true)
	if offset, uncertainty := c.offset.at(nowUS()); uncertainty != unknown {
		c.formerOffset = offset
	}
	c.offset = clockOffset{} // the broker may be another one
	c.pings = map[uint32]int64{}
	if c.closed {
		return false
	}
	c.stream = stream
	c.whole = false
	c.owed = 0
	c.say(encodeCredit(max(c.credit-len(c.held)-len(c.atHand), 0)))
	c.sendAcks()
	c.changed()
	return true
}

func (c *Consumer) endedWhole(whole bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.whole = whole
}

// say sends a frame; called under the mutex. That it failed is told by the end of the stream.
func (c *Consumer) say(frame []byte) {
	if c.stream != nil {
		c.stream.say(frame)
	}
}

// nextNumber is called under the mutex.
func (c *Consumer) nextNumber() uint32 {
	c.number++
	if c.number == 0 {
		c.number = 1 // 0 asks for no reply
	}
	return c.number
}

func (c *Consumer) delivered(head *delivery, rows []*Message) {
	c.signs.hears(true)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	under := &lease{head.partition, head.leaseID, len(rows), head.leaseEndMS, c.generation}
	c.offset.reached = max(c.offset.reached, head.sent)
	release := head.sent // what was due when it was sent keeps the broker's order
	for _, message := range rows {
		message.lease = under
		release = max(release, message.Due.UnixMicro())
		c.arrivals++
		heap.Push(&c.held, heldMessage{message, release, c.arrivals})
	}
	c.changed()
}

func (c *Consumer) heard(frame any) {
	c.signs.hears(true)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	switch frame := frame.(type) {
	case *pong:
		if sent, is := c.pings[frame.number]; is {
			delete(c.pings, frame.number)
			c.offset.addPong(sent, nowUS(), frame.brokerUS)
			c.changed()
		}
	case *reply:
		if c.acked(frame) {
			return
		}
		if waiting, is := c.waiting[frame.number]; is {
			delete(c.waiting, frame.number)
			waiting <- frame
		}
	}
}

// attend breaks a stream whose broker does not answer, neither pings nor when it is asked for a sign of
// life.
func (c *Consumer) attend(asked *broker, abort func(*Error), over <-chan struct{}) {
	if c.client.attend(asked, &c.signs, over) {
		abort(asked.silent())
	}
}

// ping measures the broker's clock: often at first, then once a second.
func (c *Consumer) ping(ended chan struct{}) {
	for count := uint32(1); ; count++ {
		c.mutex.Lock()
		now := nowUS()
		offset, uncertainty := c.offset.at(now)
		if len(c.pings) < 64 {
			c.pings[count] = now
			c.say(encodePing(ping{count, now, offset, uncertainty}))
		}
		c.forgetEnded(now)
		c.mutex.Unlock()
		next := time.Second
		if count < 6 {
			next = 10 * time.Millisecond << count
		}
		select {
		case <-time.After(next):
		case <-ended:
			return
		}
	}
}

// forgetEnded is called under the mutex: what was handed over and never settled is back at the
// broker when its lease ends, and makes room for others.
func (c *Consumer) forgetEnded(now int64) {
	brokerMS, gone := c.offset.brokerMS(now), 0
	for one, under := range c.atHand {
		if under.endMS < brokerMS {
			delete(c.atHand, one)
			gone++
		}
	}
	c.room(gone)
}

// room is called under the mutex: so many more may come. Where there is enough at hand, the broker is
// told of several together.
func (c *Consumer) room(rows int) {
	c.owed += rows
	if len(c.held) == 0 || c.owed*creditParts >= c.credit {
		c.giveCredit()
	}
}

func (c *Consumer) giveCredit() {
	if c.owed > 0 {
		c.say(encodeCredit(c.owed))
		c.owed = 0
	}
}

// Receive waits for the next message that is due. It is leased: Ack it, Nack it, or lose it when its
// lease ends. An Error that cannot be retried is why the broker refuses to deliver.
func (c *Consumer) Receive(ctx context.Context) (*Message, error) {
	for {
		c.mutex.Lock()
		now := nowUS()
		wait := time.Hour
		if c.closing {
			c.mutex.Unlock()
			return nil, unavailable("the consumer is closed")
		}
		for len(c.held) > 0 {
			next := c.held[0]
			if next.message.lease.endMS <= c.offset.brokerMS(now) {
				heap.Pop(&c.held)
				c.room(1)
				continue
			}
			us, known := c.offset.wait(next.releaseUS, now)
			if known && us == 0 {
				heap.Pop(&c.held)
				c.atHand[handed{next.message.ID, next.message.Attempts}] = next.message.lease
				c.mutex.Unlock()
				return next.message, nil
			}
			if known {
				wait = time.Duration(us) * time.Microsecond
			}
			break
		}
		c.giveCredit()
		wake, refused := c.wake, c.refused
		c.mutex.Unlock()
		if refused != nil {
			return nil, refused
		}
		timer := time.NewTimer(wait)
		select {
		case <-wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// Ack says that messages are done; a status for each. LeaseLost: it is not this consumer's any more.
func (c *Consumer) Ack(ctx context.Context, messages ...*Message) ([]Status, error) {
	return c.settle(ctx, settle{op: opAck}, messages)
}

// Refusal says how messages are given back.
type Refusal struct {
	Delay   time.Duration // from now
	Backoff bool          // wait as the topic says, in place of Delay
	Reason  string        // why, for the dead letter
	Dead    bool          // they die now, however often they were delivered
}

// Nack gives messages back.
func (c *Consumer) Nack(ctx context.Context, refusal Refusal, messages ...*Message) ([]Status, error) {
	asked := settle{op: opNack, argumentMS: refusal.Delay.Milliseconds(), reason: refusal.Reason}
	if refusal.Backoff {
		asked.argumentMS = -1
	}
	if refusal.Dead {
		asked.fate = fateDead
	}
	return c.settle(ctx, asked, messages)
}

// Extend has leases end so long from now; 0 = the topic's lease.
func (c *Consumer) Extend(ctx context.Context, length time.Duration, messages ...*Message) ([]Status, error) {
	statuses, err := c.settle(ctx, settle{op: opExtend, argumentMS: length.Milliseconds()}, messages)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	end := c.offset.brokerMS(nowUS()) + length.Milliseconds()
	for row, status := range statuses {
		if status == OK && length > 0 {
			extended := *messages[row].lease
			extended.endMS = end
			messages[row].lease = &extended
			c.atHand[handed{messages[row].ID, messages[row].Attempts}] = &extended
		}
	}
	return statuses, err
}

// settle asks on the stream that is open, or the next one. If it breaks before the reply, whether
// the rows were settled is unknown: the error says Unavailable. Where the topic was on its way to
// another broker, nothing was settled: that one is asked.
func (c *Consumer) settle(ctx context.Context, asked settle, messages []*Message) ([]Status, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	var answer *reply
	again := false
	err := c.client.followed(ctx, func() (err error) {
		answer, err = c.settleOnce(ctx, asked, messages, again)
		again = true
		return err
	})
	if err != nil {
		return nil, err
	}
	if asked.op != opExtend {
		c.mutex.Lock()
		c.leave(messages)
		c.mutex.Unlock()
	}
	return answer.statusesOf(len(messages)), nil
}

// settleOnce names the messages by id and attempt if their lease may be known to another broker.
func (c *Consumer) settleOnce(
	ctx context.Context, asked settle, messages []*Message, byID bool,
) (*reply, error) {
	answered, late := make(chan *reply, 1), time.After(c.client.retryFor)
	for {
		c.mutex.Lock()
		if c.closed || c.refused != nil {
			c.mutex.Unlock()
			return nil, unavailable("the consumer is closed")
		}
		if c.stream != nil {
			break
		}
		wake := c.wake
		c.mutex.Unlock()
		select {
		case <-wake:
		case <-late:
			return nil, c.unknown("there is no stream to settle on")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	asked.number = c.nextNumber()
	if under := c.wholeLease(messages); under != nil && !byID {
		asked.partition, asked.leaseID = under.partition, under.id
	} else {
		asked.leaseID = -1
		for _, message := range messages {
			asked.ids = append(asked.ids, message.ID)
			asked.attempts = append(asked.attempts, message.Attempts)
		}
	}
	c.waiting[asked.number] = answered
	c.say(encodeSettle(asked))
	c.mutex.Unlock()
	select {
	case answer, is := <-answered:
		if !is {
			return nil, c.unknown("the connection broke; whether the messages are settled is unknown")
		}
		if answer.err != nil {
			return nil, answer.err
		}
		return answer, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// unknown is what whoever waits is told when there is no stream: this, or that the broker is silent.
func (c *Consumer) unknown(otherwise string) *Error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.ended != nil && c.ended.silent {
		return c.ended
	}
	return unavailable("%s", otherwise)
}

// leave is called under the mutex: the messages make room for others.
func (c *Consumer) leave(messages []*Message) {
	gone := 0
	for _, message := range messages {
		one := handed{message.ID, message.Attempts}
		if _, is := c.atHand[one]; is {
			delete(c.atHand, one)
			gone++
		}
	}
	c.room(gone)
}

// wholeLease is the lease that these messages are all of, if it came on this stream.
func (c *Consumer) wholeLease(messages []*Message) *lease {
	under := messages[0].lease
	if under == nil || under.generation != c.generation || under.rows != len(messages) {
		return nil
	}
	seen := map[int64]bool{}
	for _, message := range messages {
		if message.lease != under || seen[message.ID] {
			return nil
		}
		seen[message.ID] = true
	}
	return under
}
