package dejaqueue

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// rowsOfDelivery are the IPC messages of a schema and of two deliveries of one row.
func rowsOfDelivery(t *testing.T) [][]byte {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "payload", Type: arrow.BinaryTypes.Binary},
	}, nil)
	var written bytes.Buffer
	writer := ipc.NewWriter(&written, ipc.WithSchema(schema))
	ends := []int{}
	for id := range 2 {
		rows := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		rows.Field(0).(*array.Int64Builder).Append(int64(id))
		rows.Field(1).(*array.BinaryBuilder).Append(fmt.Appendf(nil, "payload %d", id))
		if err := writer.Write(rows.NewRecordBatch()); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, written.Len())
	}
	content := written.Bytes()
	schemaEnd := 8 + int(binary.LittleEndian.Uint32(content[4:]))
	return [][]byte{content[:schemaEnd], content[schemaEnd:ends[0]], content[ends[0]:ends[1]]}
}

func TestDeliveriesOfALaneAreReadThoughALaterBrokerAddsToThem(t *testing.T) {
	parts := rowsOfDelivery(t)
	const more = "more"
	deliveryHead := worked(t, "DELIVERY:")
	var came []byte
	came = withLength(came, append(append(head(frameOpened, 0), parts[0]...), more...))
	came = withLength(came, append(head(77, 0), more...)) // of a type that is not known
	for _, rows := range parts[1:] {
		came = withLength(came, append(append(bytes.Clone(deliveryHead), rows...), more...))
	}
	came = withLength(came, worked(t, "ERROR"))
	came = withLength(came, worked(t, "CLOSE"))
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	consumer := &Consumer{wake: make(chan struct{}), atHand: map[handed]*lease{}}
	stream := &laneConsume{consumer: consumer, connection: &laneConnection{
		Conn: near, reader: bufio.NewReader(bytes.NewReader(came)),
	}}
	stream.read()
	if len(consumer.held) != 2 {
		t.Fatal(consumer.held)
	}
	for place, one := range consumer.held {
		message := one.message
		if message.ID != int64(place) || string(message.Payload) != fmt.Sprintf("payload %d", place) {
			t.Error(message)
		}
		if message.lease.id != 81 || message.lease.partition != 2 {
			t.Error(message.lease)
		}
	}
	if stream.ended == nil || stream.ended.Number != NumberUnavailable || !stream.opened {
		t.Error(stream.ended)
	}
}

func TestAFrameOfALaneThatIsTooLongIsNotRead(t *testing.T) {
	came := binary.LittleEndian.AppendUint32(nil, bytesMax+1)
	connection := &laneConnection{reader: bufio.NewReader(bytes.NewReader(came))}
	if _, err := connection.receive(); err == nil || laneError(err).Number != 90 {
		t.Error(err)
	}
}

func TestWhatManyPutIsWrittenWholeAndInOrder(t *testing.T) {
	const goroutines, puts = 8, 500
	near, far := net.Pipe()
	defer far.Close()
	writer := &laneWriter{connection: near}
	var putting sync.WaitGroup
	for goroutine := range goroutines {
		putting.Go(func() {
			for number := range puts {
				writer.put(func(to []byte) []byte {
					return withLength(to, []byte{byte(goroutine), byte(number >> 8), byte(number)})
				})
				if goroutine%2 == 0 {
					writer.flush()
				} else {
					writer.flushSoon()
				}
			}
		})
	}
	next := [goroutines]int{}
	connection := &laneConnection{reader: bufio.NewReader(far)}
	for range goroutines * puts {
		frame, err := connection.receive()
		if err != nil {
			t.Fatal(err)
		}
		number := int(frame[1])<<8 | int(frame[2])
		if number != next[frame[0]] {
			t.Fatalf("%d of %d came in the place of %d", number, frame[0], next[frame[0]])
		}
		next[frame[0]]++
	}
	putting.Wait()
}

// fakeChannel is a lane that keeps what is sent.
type fakeChannel struct {
	of      *broker
	sent    []*outgoing
	dropped bool
}

func (f *fakeChannel) write(sending *outgoing) bool {
	f.sent = append(f.sent, sending)
	return true
}
func (f *fakeChannel) flush()        {}
func (f *fakeChannel) flushSoon()    {}
func (f *fakeChannel) drop()         { f.dropped = true }
func (f *fakeChannel) abort(*Error)  { f.dropped = true }
func (f *fakeChannel) finish()       {}
func (f *fakeChannel) isLane() bool  { return true }
func (f *fakeChannel) isOver() bool  { return false }
func (f *fakeChannel) peer() *broker { return f.of }

func fakeLink() (*link, *fakeChannel) {
	client, err := Dial("dejaq://a:1", Options{RetryFor: time.Minute})
	if err != nil {
		panic(err)
	}
	made := client.link(map[string]any{"topic": "t"}, true)
	fake := &fakeChannel{of: client.brokers[0]}
	made.channel = fake
	return made, fake
}

func (p *link) gatherMany(count int) {
	for number := range count {
		p.slots <- struct{}{}
		p.gather(&Message{Payload: fmt.Appendf(nil, "%d", number)}, 4)
	}
}

func TestMessagesAreGatheredWhileOthersAreOnTheirWay(t *testing.T) {
	link, fake := fakeLink()
	link.gatherMany(1 + 200)
	if len(fake.sent) != 1 || fake.sent[0].rows != 1 {
		t.Fatal(len(fake.sent))
	}
	link.replied(fake, 1, &reply{number: 1, rows: 1, ids: []int64{7}})
	if len(fake.sent) != 2 || fake.sent[1].rows != 200 || fake.sent[1].number != 2 {
		t.Fatal(len(fake.sent))
	}
	link.gatherMany(gatheredEarly)
	if len(fake.sent) != 3 || fake.sent[2].rows != gatheredEarly {
		t.Error("so many do not wait for the answer to others", len(fake.sent))
	}
	if len(link.slots) != 200+gatheredEarly {
		t.Error("an answer does not make room", len(link.slots))
	}
}

func TestAFrameThatIsRefusedForOneMessageIsSentMessageByMessage(t *testing.T) {
	link, fake := fakeLink()
	link.gatherMany(1 + 3)
	link.replied(fake, 1, &reply{number: 1, rows: 1, ids: []int64{7}})
	refused := &Error{Number: NumberBadRequest, Name: "BadRequest"}
	link.replied(fake, 2, &reply{number: 2, rows: 3, err: refused})
	if len(fake.sent) != 5 {
		t.Fatal(len(fake.sent))
	}
	for place, alone := range fake.sent[2:] {
		if alone.rows != 1 || alone.number != uint32(3+place) || fake.sent[1].alone[place] != alone {
			t.Error(place, alone)
		}
	}
	link.replied(fake, 4, &reply{number: 4, rows: 1, err: refused})
	link.replied(fake, 3, &reply{number: 3, rows: 1, ids: []int64{8}})
	link.replied(fake, 5, &reply{number: 5, rows: 1, ids: []int64{9}})
	if fake.sent[3].err != refused || fake.sent[2].err != nil || len(link.waiting) != 0 || len(link.slots) != 0 {
		t.Error(link.waiting, len(link.slots))
	}
}

func TestWhatALaneHasNoPlaceForIsSentAgainUnderItsNumber(t *testing.T) {
	link, fake := fakeLink()
	link.connecting = true // nobody connects but this test
	link.gatherMany(1)
	inShards := map[string]any{"spread": 3.0}
	link.replied(fake, 1, &reply{number: 1, rows: 1, err: &Error{Number: NumberElsewhere, Fields: inShards}})
	if !fake.dropped || link.channel != nil || link.mayTryLane() {
		t.Error("it does not go by Flight")
	}
	again := &fakeChannel{of: fake.of}
	link.mutex.Lock()
	link.opened(again, nil)
	link.mutex.Unlock()
	if len(again.sent) != 1 || again.sent[0].number != 1 {
		t.Error(again.sent)
	}
}

func TestAcksAreGatheredAndSentAgain(t *testing.T) {
	said := &saidFrames{}
	consumer := &Consumer{
		client: &Client{retryFor: time.Minute}, wake: make(chan struct{}), credit: 100, stream: said,
		atHand: map[handed]*lease{}, waiting: map[uint32]chan *reply{}, acks: ackPipe{onWay: map[uint32]ackBatch{}},
	}
	endMS := time.Now().Add(time.Hour).UnixMilli()
	ack := func(id int64) {
		message := &Message{ID: id, Attempts: 1, lease: &lease{endMS: endMS}}
		if err := consumer.AckAsync(t.Context(), message); err != nil {
			t.Fatal(err)
		}
	}
	for id := range int64(5) {
		ack(id)
	}
	if len(said.settles) != 1 || said.settles[0] != 1 {
		t.Fatal(said.settles)
	}
	consumer.heard(&reply{number: 1, rows: 1})
	if len(said.settles) != 2 || said.settles[1] != 4 {
		t.Fatal(said.settles)
	}
	consumer.acksBroke() // no answer to the second
	consumer.sendAcks()
	if len(said.settles) != 3 || said.settles[2] != 4 || consumer.acks.count != 4 {
		t.Fatal(said.settles, consumer.acks.count)
	}
	lost := []Status{OK, LeaseLost, OK, NotFound}
	consumer.heard(&reply{number: 3, rows: 4, statuses: lost})
	if err := consumer.Flush(t.Context()); err != nil {
		t.Error("their leases go on: they are acked", err)
	}
	ack(9)
	consumer.heard(&reply{number: 4, rows: 1, statuses: []Status{LeaseLost}})
	if err := consumer.Flush(t.Context()); err == nil || err.(*Error).Number != NumberRefused {
		t.Error(err)
	}
	endMS = time.Now().UnixMilli()
	ack(10)
	consumer.acksBroke()
	consumer.sendAcks()
	consumer.heard(&reply{number: 6, rows: 1, statuses: []Status{LeaseLost}})
	if err := consumer.Flush(t.Context()); err == nil || err.(*Error).Number != NumberUnavailable {
		t.Error(err)
	}
	if err := consumer.Flush(t.Context()); err != nil {
		t.Error("it was told", err)
	}
}

func TestWhatIsGivenBackIsNotDueBeforeItWas(t *testing.T) {
	said := &saidFrames{}
	consumer := &Consumer{stream: said, generation: 2, atHand: map[handed]*lease{}}
	consumer.offset.addPong(nowUS(), nowUS(), nowUS())
	due := time.Now().Add(10 * time.Second)
	earlier, now := &lease{generation: 1}, &lease{generation: 2}
	consumer.held = holding{
		{message: &Message{ID: 1, Attempts: 1, Due: due, lease: earlier}},
		{message: &Message{ID: 2, Attempts: 1, Due: due, lease: now}},
	}
	consumer.atHand[handed{3, 1}] = earlier
	consumer.giveBackEarlier()
	if len(said.frames) != 2 {
		t.Fatal(said.frames)
	}
	for place, want := range []struct {
		fate     byte
		from, to int64 // of the delay
		id       uint64
	}{{fateRelease, 9_000, 10_010, 1}, {0, 0, 0, 3}} {
		frame := said.frames[place]
		delay := int64(binary.LittleEndian.Uint64(frame[24:]))
		id := binary.LittleEndian.Uint64(frame[40:])
		if frame[8] != opNack || frame[9] != want.fate || delay < want.from || delay > want.to || id != want.id {
			t.Errorf("% x", frame)
		}
	}
}

func TestWhatIsHeldForLaterDoesNotPutOffWhatIsDueSooner(t *testing.T) {
	consumer := &Consumer{stream: &saidFrames{}, generation: 2, atHand: map[handed]*lease{}}
	consumer.offset.addPong(nowUS(), nowUS(), nowUS())
	now, of := time.Now(), &lease{generation: 1}
	for id, after := range []time.Duration{-time.Second, time.Second, time.Second, 20 * time.Second} {
		one := &Message{ID: int64(id), Attempts: 1, Due: now.Add(after), lease: of}
		consumer.held = append(consumer.held, heldMessage{message: one})
	}
	found := consumer.left(func(*lease) bool { return true })
	latest := map[int64]int64{} // of the delays, by message
	for _, asked := range found {
		for _, id := range asked.ids {
			latest[id] = asked.argumentMS
		}
	}
	if len(found) != 3 || len(latest) != 4 {
		t.Fatal(found)
	}
	for id, most := range []int64{0, 1_100, 1_100, 20_100} {
		if latest[int64(id)] > most || (most > 0 && latest[int64(id)] < most-1_000) {
			t.Error(id, latest[int64(id)])
		}
	}
}

func TestTheClockOfABrokerThatWasNotHeardYetIsThatOfTheOneBeforeAndMayBeBehindIt(t *testing.T) {
	consumer := &Consumer{formerOffset: 5_000_000}
	if ahead := consumer.reachedMS() - nowUS()/1_000; ahead < 3_900 || ahead > 4_000 {
		t.Error(ahead)
	}
	consumer.offset.reached = nowUS() + 9_000_000 // it stood in a DELIVERY
	if consumer.reachedMS() != consumer.offset.reached/1_000 {
		t.Error(consumer.reachedMS())
	}
	consumer.offset = clockOffset{}
	consumer.offset.addPong(nowUS(), nowUS(), nowUS())
	if ahead := consumer.reachedMS() - nowUS()/1_000; ahead < -100 || ahead > 100 {
		t.Error(ahead)
	}
}

// saidFrames notes the frames, and the rows of each SETTLE.
type saidFrames struct {
	frames  [][]byte
	settles []int
}

func (s *saidFrames) say(frame []byte) {
	s.frames = append(s.frames, frame)
	if frame[1] == frameSettle {
		s.settles = append(s.settles, int(binary.LittleEndian.Uint32(frame[headBytes+24:])))
	}
}
